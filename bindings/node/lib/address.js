"use strict";
// Keys of client addresses, as policies have them: one per IPv4 address and one per /64 of IPv6.
const net = require("node:net");
const { errors, show } = require("./native");

/** The eight groups of an IPv6 address that net.isIPv6 has accepted. */
function groupsOf(address) {
    const dotted = address.lastIndexOf(":") + 1;
    let text = address;
    if (address.includes(".")) {
        const bytes = address.slice(dotted).split(".").map(Number);
        text = `${address.slice(0, dotted)}${(bytes[0] << 8 | bytes[1]).toString(16)}:${(bytes[2] << 8 | bytes[3]).toString(16)}`;
    }
    const [head, tail] = text.split("::").map((part) => part.split(":").filter(Boolean).map((group) => parseInt(group, 16)));
    return tail === undefined ? head : [...head, ...new Array(8 - head.length - tail.length).fill(0), ...tail];
}

/** What to limit a client by: "192.0.2.7", or "2001:db8:1:2::/64" for the network of an IPv6 address. */
function addressKey(address) {
    if (typeof address === "string" && net.isIPv4(address))
        return address;
    const bare = typeof address === "string" ? address.replace(/%.*$/, "") : "";
    if (!net.isIPv6(bare))
        throw new errors.EINVAL(`invalid address ${show(address)}: expected an IPv4 or IPv6 address`);
    const groups = groupsOf(bare);
    if (groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff)
        return `${groups[6] >> 8}.${groups[6] & 255}.${groups[7] >> 8}.${groups[7] & 255}`;
    const network = new net.SocketAddress({ family: "ipv6", address: `${groups.slice(0, 4).map((group) => group.toString(16)).join(":")}::` });
    return `${network.address}/64`;
}

module.exports = { addressKey };
