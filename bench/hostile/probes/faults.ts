// Probes with faults: a missing model file, crashed engines, foreign programs in the server's folder.
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Outcome, Probe } from "../probe.ts";
import { isNamed, type Reply, summary } from "../rig/client.ts";
import { templates, tinyModel } from "../rig/models.ts";
import type { Rig } from "../rig/rig.ts";
import type { HostileServer } from "../rig/server.ts";

const recoveryMs = 15_000;
const installerLimitMs = 120_000;

export const faultProbes: readonly Probe[] = [
  {
    name: "one model's file gone, text thread ended",
    finding: 13,
    concerns: [],
    limitMs: 120_000,
    async settings({ folder }) {
      const [plain, gone, endless] = await Promise.all([
        tinyModel(folder, "plain"),
        tinyModel(folder, "gone"),
        tinyModel(folder, "endless", templates.endless),
      ]);
      // With a small heap the text thread runs out of memory sooner.
      return { models: [plain, gone, endless], nodeFlags: ["--max-old-space-size=512"] };
    },
    run: restartWithoutFile,
  },
  {
    name: "engine killed under a request",
    finding: 16,
    concerns: ["engine"],
    engines: ["llama"],
    // The bystander's responses fail when the engine crashes.
    isBystanderExempt: true,
    settings: async ({ folder }) => ({ models: [await tinyModel(folder, "tiny")] }),
    async run(rig) {
      const reply = rig.chat({ max_tokens: 2000, ignore_eos: true });
      await sleep(1000);
      for (const pid of rig.server.enginePids) process.kill(pid, "SIGKILL");
      const failed = await reply;
      const back = await answersAgain(rig, {});
      return {
        attacker: `${summary([failed])}, Retry-After ${failed.retryAfter ?? "missing"}; then ${summary([back])}`,
        isHeld: failed.status === 503 && failed.retryAfter !== null && back.status === 200,
      };
    },
  },
  { name: "a pip of its own in the server's folder", finding: 16, concerns: [], limitMs: 180_000, runAlone: offerPip },
];

/** Crashes a text worker by exhausting its memory. If the worker survives, uses a template that never returns. */
async function restartWithoutFile(rig: Rig & { readonly server: HostileServer }): Promise<Outcome> {
  const file = (name: string) => join(rig.folder, `${name}.gguf`);
  rmSync(file("gone"));
  const schema = { type: "object", properties: { ["x".repeat(60_000)]: { type: "string" } } };
  const killer = await rig.chat({ grammar: { type: "json_schema", value: schema } });
  const isBorne = killer.status < 500 && killer.failure === null;
  const killers = isBorne ? [killer, await rig.chat({ model: file("endless"), messages: "loop" })] : [killer];
  const plain = await answersAgain(rig, {});
  const gone = await rig.chat({ model: file("gone") });
  const health = await rig.get("/health");
  return {
    attacker: `${summary(killers)}; then ${summary([plain])}; the model without a file: ${summary([gone])}`,
    isHeld: plain.status === 200 && health.status === 200 && isNamed(gone) && gone.code !== "model_loading",
  };
}

/** Repeats a request for some seconds. Returns the first success, or the last error. */
async function answersAgain(rig: Rig, fields: object): Promise<Reply> {
  const end = performance.now() + recoveryMs;
  for (;;) {
    const reply = await rig.chat(fields);
    if (reply.status === 200 || performance.now() > end) return reply;
    await sleep(200);
  }
}

/** Starts the server in a folder where `python3 -m pip` would find a different pip first. Contacts no package index. */
async function offerPip(rig: Rig): Promise<Outcome> {
  const marker = join(rig.folder, "ran");
  const fake = join(rig.folder, "pip");
  mkdirSync(fake);
  const script = `open(${JSON.stringify(marker)}, "w").close()\n`;
  for (const name of ["__init__.py", "__main__.py"]) writeFileSync(join(fake, name), script);
  const args = [
    join(rig.options.directory, "cli/troupe.mjs"),
    "serve",
    "-m",
    "pypi:troupe-probe",
    "--port",
    "0",
    "--cpu",
  ];
  const nowhere = "http://127.0.0.1:9/";
  const env = {
    ...process.env,
    PIP_INDEX_URL: nowhere,
    UV_INDEX_URL: nowhere,
    XDG_CACHE_HOME: rig.folder,
    XDG_STATE_HOME: rig.stateDir,
  };
  await new Promise<void>((resolve) => {
    execFile(process.execPath, args, { cwd: rig.folder, env, timeout: installerLimitMs }, () => resolve());
  });
  const hasRun = existsSync(marker);
  return { attacker: hasRun ? "it was run" : "it was not run", isHeld: !hasRun };
}
