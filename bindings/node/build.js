"use strict";
// Compiles the addon with cc, the library's sources included: build/weir.node. Needs no network and no node-gyp.
//
//     node build.js             CC, CFLAGS and LDFLAGS are as usual; WEIR_LIBRARY=libweir.a links that instead of the sources;
//                               WEIR_NODE_HEADERS names the folder of node_api.h
//     node build.js --gather    copies the library's sources to library/, so that a packed package has them
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { spawn, spawnSync } = require("node:child_process");

const HERE = __dirname;
const REPOSITORY = path.resolve(HERE, "../..");
const GATHERED = path.join(HERE, "library");

function stop(message) {
    console.error(`weir: ${message}`);
    process.exit(1);
}

function words(text) {
    return (text || "").split(/\s+/).filter(Boolean);
}

const isRepository = (folder) => fs.existsSync(path.join(folder, "src/library.txt")) && fs.existsSync(path.join(folder, "tools/library.py"));

function lines(root, name) {
    return fs.readFileSync(path.join(root, "src", name), "utf8").split("\n").filter(Boolean);
}

// What tools/library.py prints of the repository; the lists are read by it and by meson.
function library(...what) {
    const done = spawnSync("python3", ["-B", path.join(REPOSITORY, "tools/library.py"), ...what], { encoding: "utf8" });
    if (done.status !== 0)
        stop(`python3 tools/library.py ${what[0]} failed: ${done.error ? done.error.message : done.stderr}`);
    return words(done.stdout);
}

// ---- gathering ----

function gather() {
    if (!isRepository(REPOSITORY))
        return; // an unpacked package has them already
    fs.rmSync(GATHERED, { recursive: true, force: true });
    for (const name of library("files").filter((file) => /^(src|include)\//.test(file) || file === "LICENSE")) {
        fs.mkdirSync(path.dirname(path.join(GATHERED, name)), { recursive: true });
        fs.copyFileSync(path.join(REPOSITORY, name), path.join(GATHERED, name));
    }
    library("header", path.join(GATHERED, "made"));
}

// ---- compiling ----

function headers() {
    const near = path.resolve(path.dirname(fs.realpathSync(process.execPath)), "../include/node");
    const found = [process.env.WEIR_NODE_HEADERS, near, "/usr/include/node", "/usr/local/include/node"]
        .find((folder) => folder && fs.existsSync(path.join(folder, "node_api.h")));
    return found || stop("node_api.h is missing. On Debian and Ubuntu: apt-get install libnode-dev. Otherwise name its folder in WEIR_NODE_HEADERS");
}

function run(command, args) {
    return new Promise((resolve) => {
        const child = spawn(command, args, { stdio: ["ignore", "inherit", "inherit"] });
        child.on("error", (error) => stop(`${command} cannot be started: ${error.message}. Install a C compiler, or name one in CC`));
        child.on("exit", (code) => resolve(code === 0));
    });
}

function knows(cc, flag, folder) {
    const source = path.join(folder, "flag.c");
    fs.writeFileSync(source, "int a;\n");
    return spawnSync(cc[0], [...cc.slice(1), "-Werror", flag, "-c", source, "-o", `${source}.o`], { stdio: "ignore" }).status === 0;
}

async function compile(cc, jobs) {
    let failed = false;
    const worker = async () => {
        for (let job = jobs.shift(); job && !failed; job = jobs.shift())
            failed = !(await run(cc[0], [...cc.slice(1), ...job])) || failed;
    };
    await Promise.all(Array.from({ length: Math.max(1, os.cpus().length) }, worker));
    if (failed)
        stop("the compiler failed");
}

async function build() {
    const root = isRepository(REPOSITORY) ? REPOSITORY : GATHERED;
    const out = path.join(HERE, "build");
    const objects = path.join(out, "objects");
    if (process.platform !== "linux")
        stop(`${process.platform} is not supported: weir runs on Linux`);
    if (!fs.existsSync(path.join(root, "src/library.txt")))
        stop("the library's sources are missing: install from the repository, or from a package that npm pack has made");
    fs.rmSync(out, { recursive: true, force: true });
    fs.mkdirSync(objects, { recursive: true });

    const cc = words(process.env.CC || "cc");
    const ready = process.env.WEIR_LIBRARY;
    const made = root === GATHERED ? path.join(GATHERED, "made") : path.join(out, "made");
    if (root === REPOSITORY && !ready)
        library("header", made);
    const flags = lines(root, "library_flags.txt")
        .filter((flag) => flag[0] !== "?" || knows(cc, flag.slice(1), objects)).map((flag) => flag.replace(/^\?/, ""));
    const common = ["-O2", "-DNDEBUG", "-std=gnu11", "-fPIC", "-fvisibility=hidden", ...flags, `-I${root}/include`, ...words(process.env.CFLAGS)];
    const jobs = [];
    const add = (source, extra) => {
        const object = path.join(objects, `${jobs.length}.o`);
        jobs.push([...common, ...extra, "-c", source, "-o", object]);
        return object;
    };
    const linked = fs.readdirSync(path.join(HERE, "src")).filter((name) => name.endsWith(".c")).sort()
        .map((name) => add(path.join(HERE, "src", name), ["-Wall", "-Wextra", `-I${headers()}`, `-I${root}/src`]));
    if (!ready)
        linked.push(...lines(root, "library.txt").map((name) => add(path.join(root, "src", name), [`-I${root}/src`, `-I${made}`])));
    await compile(cc, jobs);
    // Threads of Node end after their addon: what the library does at their end must still be there (nodelete).
    const link = ["-shared", "-o", path.join(out, "weir.node"), ...linked, ...(ready ? [path.resolve(ready)] : []), "-Wl,--exclude-libs,ALL",
        "-Wl,-z,nodelete", ...words(process.env.CFLAGS), ...words(process.env.LDFLAGS), "-lpthread", "-lm", "-ldl"];
    if (!(await run(cc[0], [...cc.slice(1), ...link])))
        stop("the linker failed");
    fs.rmSync(objects, { recursive: true, force: true });
    fs.rmSync(path.join(out, "made"), { recursive: true, force: true });
}

if (process.argv[2] === "--gather")
    gather();
else
    build();
