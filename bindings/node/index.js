"use strict";
// weir for Node: README.md is the manual, index.d.ts has the types.
const { native, WeirError, errors } = require("./lib/native");
const { Limit } = require("./lib/limit");
const { Decision } = require("./lib/decision");
const { Store, fields } = require("./lib/store");
const { addressKey } = require("./lib/address");

module.exports = { Store, Limit, Decision, WeirError, errors, fields, addressKey, version: native.version };
