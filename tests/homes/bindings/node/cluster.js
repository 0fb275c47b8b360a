"use strict";
// Express in four workers of a cluster; those that die are replaced. cluster.js PORT ZONE_URL
// It prints "listens PID" and "ended PID" for each worker: that one of them answers says nothing about the others.
const cluster = require("node:cluster");
const express = require("express");
const { Store } = require("weir");
const { limited } = require("weir/express");

const [port, url] = process.argv.slice(2);
const WORKERS = 4;

if (cluster.isPrimary) {
    cluster.on("listening", (worker) => console.log(`listens ${worker.process.pid}`));
    cluster.on("exit", (worker) => {
        console.log(`ended ${worker.process.pid}`);
        cluster.fork();
    });
    for (let i = 0; i < WORKERS; i++)
        cluster.fork();
} else {
    const store = new Store(url);
    const app = express();
    const key = (req) => req.query.k;
    app.get("/who", (req, res) => res.send(String(process.pid)));
    app.get("/bucket", limited(store, { key, limit: "token-bucket 1/100d burst 200" }), (req, res) => res.send("passed\n"));
    app.get("/many", limited(store, { key, limit: "token-bucket 1/100d burst 5000" }), (req, res) => res.send("passed\n"));
    app.get("/window", limited(store, { limits: [{ key, limit: "fixed-window 200/366d from-first" }, { key: "all", limit: "sliding-log 5000/h" }] }), (req, res) => res.send("passed\n"));
    app.get("/slots", limited(store, { key, limit: "concurrent 3 lease 1h" }), (req, res) => setTimeout(() => res.send("passed\n"), 2));
    app.listen(Number(port), "127.0.0.1");
}
