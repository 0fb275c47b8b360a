-- Keys of client addresses, as the middlewares of other languages have them: one per IPv4 address, one per /64 of IPv6, because
-- one client has all of it.

local byte, find, format, gsub = string.byte, string.find, string.format, string.gsub

local _M = {}

local function dotted(bytes, from)
    return format("%d.%d.%d.%d", byte(bytes, from, from + 3))
end

local function network(bytes)
    local a, b, c, d, e, f, g, h = byte(bytes, 1, 8)
    local text = format("%x:%x:%x:%x", a * 256 + b, c * 256 + d, e * 256 + f, g * 256 + h)
    while find(text, ":0$") do -- zeros before the end are part of "::"
        text = gsub(text, ":0$", "")
    end
    return (text == "0" and "" or text) .. "::/64"
end

-- "192.0.2.7", or "2001:db8:1:2::/64". Without bytes, of the client of the current request: what $binary_remote_addr has.
function _M.key(bytes)
    if bytes == nil then
        bytes = ngx.var.binary_remote_addr
    end
    if type(bytes) == "string" and #bytes == 4 then
        return dotted(bytes, 1)
    end
    if type(bytes) ~= "string" or #bytes ~= 16 then
        return nil, "the client's address is not known, as behind a Unix socket: use set_real_ip_from and real_ip_header", "EINVAL"
    end
    if find(bytes, "^%z%z%z%z%z%z%z%z%z%z\255\255") then
        return dotted(bytes, 13)
    end
    return network(bytes)
end

return _M
