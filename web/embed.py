#!/usr/bin/env python3
"""Writes the dashboard's files as a C header: embed.py OUTPUT FILE…

Each file as it is and gzipped, with its content type and an ETag, in the order given.
"""
import gzip
import hashlib
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def array(name, data):
    lines = [f"static const unsigned char {name}[] = {{"]
    for at in range(0, len(data), 24):
        lines.append(" " + ",".join(str(byte) for byte in data[at:at + 24]) + ",")
    return "\n".join(lines) + "\n};\n"


def main(output, files):
    arrays, table = [], []
    for i, path in enumerate(files):
        with open(path, "rb") as file:
            data = file.read()
        packed = gzip.compress(data, 9, mtime=0)
        kind = TYPES[os.path.splitext(path)[1]]
        tag = hashlib.sha256(data).hexdigest()[:16]
        arrays += [array(f"plain_{i}", data), array(f"packed_{i}", packed)]
        name = os.path.basename(path)
        table.append(f'    {{"/{"" if name == "index.html" else name}", "{kind}", "\\"{tag}\\"",\n'
                     f"     plain_{i}, sizeof plain_{i}, packed_{i}, sizeof packed_{i}}},")
    with open(output, "w", encoding="utf-8") as file:
        file.write("/* Made by web/embed.py. */\n" + "".join(arrays))
        file.write("static const struct web_file web_files[] = {\n" + "\n".join(table) + "\n};\n")


main(sys.argv[1], sys.argv[2:])
