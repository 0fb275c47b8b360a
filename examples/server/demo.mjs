// A web application behind weir-limits.mjs.
//
//     weir serve --policies examples/server/policies.yaml
//     node examples/server/demo.mjs        and then: curl -i localhost:8000
import http from "node:http";
import { limited } from "./weir-limits.mjs";

const weir = process.env.WEIR_URL ?? "http://localhost:7311";
const check = limited(weir, Number(process.env.WEIR_DEADLINE ?? 0.05));
await fetch(`${weir}/healthz`).catch(() => {}); // the first one takes long: Node loads what it needs
const port = Number(process.env.PORT ?? 8000);
http
  .createServer((request, response) => check(request, response, () => response.end("hello\n")))
  .listen(port, "localhost", () => console.log(`http://localhost:${port}`));
