"""A real nginx with Debian's lua-nginx-module and bindings/lua, for tests.

    with lua_nginx.Nginx(workers=4, http="lua_shared_dict store 1m;") as nginx:
        nginx.lua('return 1 + 1')                    what a handler returned, as JSON has it: 2
        nginx.say('ngx.say("hello")')                what it wrote

The text is run in content_by_lua, in whichever worker gets the request. `server` is more text for server{}; `weir` is
require "resty.weir" everywhere.
"""
import json
import os
import pathlib

from . import nginx_server
from .build import BUILD, ROOT

MODULES = pathlib.Path("/usr/lib/nginx/modules")
LUA = ROOT / "bindings" / "lua" / "lib"
# JSON by hand: Debian's lua-cjson is not needed for more than this.
HELPERS = r"""
local _M = {}
local function put(value, out)
    if type(value) == "table" then
        local list = #value > 0 or next(value) == nil
        out[#out + 1] = list and "[" or "{"
        local first = true
        local function comma() if not first then out[#out + 1] = "," end first = false end
        if list then
            for _, item in ipairs(value) do comma() put(item, out) end
        else
            for name, item in pairs(value) do comma() put(tostring(name), out) out[#out + 1] = ":" put(item, out) end
        end
        out[#out + 1] = list and "]" or "}"
    elseif type(value) == "number" then
        out[#out + 1] = value ~= value and "null" or value == math.floor(value) and value > -1e17 and value < 1e17
            and string.format("%.0f", value) or string.format("%.17g", value)
    elseif type(value) == "string" then
        out[#out + 1] = '"' .. value:gsub('[%z\1-\31"\\\127-\255]', function(c) return string.format("\\u%04x", c:byte()) end) .. '"'
    elseif type(value) == "boolean" then
        out[#out + 1] = tostring(value)
    else
        out[#out + 1] = "null"
    end
end
function _M.json(value) local out = {} put(value, out) return table.concat(out) end
function _M.run(plain)
    ngx.req.read_body()
    local text = ngx.req.get_body_data()
    if not text then
        local file = assert(io.open(ngx.req.get_body_file(), "rb"))
        text = file:read("*a")
        file:close()
    end
    local code, err = loadstring(text, "=test")
    if not code then ngx.status = 500 return ngx.say(err) end
    if plain then return code() end
    local values = {n = 0}
    local function keep(...) values.n = select("#", ...) for i = 1, values.n do values[i] = (select(i, ...)) end end
    keep(code())
    local texts = {}
    for i = 1, values.n do texts[i] = _M.json(values[i]) end
    ngx.say("[", table.concat(texts, ","), "]")
end
return _M
"""


class LuaError(Exception):
    """What a handler raised."""


class Nginx(nginx_server.Nginx):
    def __init__(self, http="", server="", weir=True, package="", cpath=None, **options):
        start = 'require "resty.core"' + ('; weir = require "resty.weir"' if weir else "")
        texts = [f'lua_package_path "{{folder}}/?.lua;{package}{LUA}/?.lua;;";',
                 f'lua_package_cpath "{BUILD if cpath is None else cpath}/?.so;;";',
                 "client_body_buffer_size 1m;" if "client_body_buffer_size" not in http else "",
                 "client_max_body_size 100m; keepalive_requests 1000000;",
                 f"init_by_lua_block {{ {start} }}" if "init_by_lua" not in http else "", http]
        places = ["location = /run { content_by_lua_block { require('helpers').run(false) } }",
                  "location = /say { content_by_lua_block { require('helpers').run(true) } }", server or ""]
        files = {"helpers.lua": HELPERS.encode(), **options.pop("files", {})}
        main = f"load_module {MODULES}/ndk_http_module.so; load_module {MODULES}/ngx_http_lua_module.so;" + options.pop("main", "")
        super().__init__("\n".join(texts), "\n".join(places), main=main, module=False, files=files, **options)

    def environment(self):
        return super().environment() | nginx_server.sanitized_environment(self.folder, BUILD / "libweir.so.0")

    def say(self, text, port="port"):
        answer = self.get("/say", method="POST", body=text.encode(), port=port)
        if answer.status != 200:
            raise LuaError(f"{answer.status} {answer.text}\n{self.errors()[-2000:]}")
        return answer.text

    def lua(self, text):
        """What it returned: one value, or a list of several."""
        answer = self.get("/run", method="POST", body=text.encode() if isinstance(text, str) else text)
        if answer.status != 200:
            raise LuaError(f"{answer.status} {answer.text}\n{self.errors()[-2000:]}")
        values = json.loads(answer.body)
        return values[0] if len(values) == 1 else values


def shm_zones():
    """The zones that resty.weir.limit.* have left in shared memory."""
    return sorted(name for name in os.listdir("/dev/shm") if name.startswith("weir-nginx-"))
