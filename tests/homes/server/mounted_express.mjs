// Express with the middleware of examples/server mounted at /api; recipes.py starts it.
import { createRequire } from "node:module";
import { limited } from "../../../examples/server/weir-limits.mjs";

const express = createRequire(`${process.env.NODE_PATH}/`)("express");
const app = express();
const api = express.Router();
api.use((request, response) => response.send("hello\n"));
app.use("/api", limited(process.env.WEIR_URL, Number(process.env.WEIR_DEADLINE)), api);
app.listen(Number(process.env.PORT), "localhost");
