#!/usr/bin/env node
/*
 * The dashboard in a real browser against a real server; ends in "N passed, N failed".
 *
 *     tests/homes/web/run.mjs [PART OF A NAME]      WEIR=build/weir  WEIR_SHOTS=folder for screenshots
 */
import { existsSync } from "node:fs";
import { figures } from "./figures.mjs";
import { Harness, launch } from "./harness.mjs";
import { inspecting } from "./inspecting.mjs";
import { losing } from "./losing.mjs";
import { playing } from "./playing.mjs";
import { reaching } from "./reaching.mjs";
import { reporting } from "./reporting.mjs";
import { Server, WEIR } from "./server.mjs";
import { speaking } from "./speaking.mjs";

if (!existsSync(WEIR)) {
  console.log(`${WEIR} is missing: run make first\n0 passed, 1 failed`);
  process.exit(1);
}
const harness = new Harness(process.argv[2]);
try {
  harness.browser = await launch();
  const server = await Server.start();
  try {
    for (const part of [figures, inspecting, playing, reaching, speaking]) await part(harness, server);
  } finally {
    await server.close();
  }
  await losing(harness);
  await reporting(harness);
} catch (error) {
  harness.failed++;
  console.log(`FAIL ${error.stack}`);
} finally {
  if (harness.browser) await harness.browser.close();
}
process.exit(harness.report());
