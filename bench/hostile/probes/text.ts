// Probes of the text workers: grammars that are slow to translate, and prompts that are slow to render.
import { renameSync } from "node:fs";
import { join } from "node:path";
import { namedReplies, type Outcome, type Probe, type ServerProbe } from "../probe.ts";
import { attackerKey, isNamed, type Reply, seconds, summary } from "../rig/client.ts";
import { templates, tinyModel } from "../rig/models.ts";
import type { Rig } from "../rig/rig.ts";

const longBodyBytes = 45_000_000;

export const textProbes: readonly Probe[] = [
  schemaProbe("long property name", 1, () => openObject("x".repeat(60_000)), 120_000),
  schemaProbe("20,000 enum strings under not", 1, () => ({
    not: { enum: Array.from({ length: 20_000 }, (_, i) => `word${i}`) },
  })),
  larkProbe("lark sequence of 80 KB", () => `start: ${"a ".repeat(40_000)}\na: "x"\n`),
  larkProbe("lark sequence of 240 KB", () => `start: ${"a ".repeat(120_000)}\na: "x"\n`),
  larkProbe("50,000 lark comment lines", () => `start: "a"\n${"//\n".repeat(50_000)}`),
  {
    name: "open object, name of 600 letters, 3 times",
    finding: 2,
    concerns: [],
    async run(rig) {
      const schema = openObject("x".repeat(600));
      const replies: Reply[] = [];
      for (let i = 0; i < 3; i++) replies.push(await rig.chat({ grammar: { type: "json_schema", value: schema } }));
      const times = replies.map(({ ms }) => seconds(ms)).join(", ");
      return { attacker: `${summary(replies)} (${times})`, isHeld: replies.every(isNamed) };
    },
  },
  renderingProbe("45 MB of tool arguments", () => {
    const count = longBodyBytes / 16;
    const args = `{${Array.from({ length: count }, (_, i) => `"k${i.toString(36).padStart(6, "0")}":${i % 10}`).join()}}`;
    const call = { id: "call_1", type: "function", function: { name: "f", arguments: args } };
    return [
      { role: "user", content: "Call f." },
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "call_1", content: "done" },
    ];
  }),
  renderingProbe("45 MB of U+E000", () => [{ role: "user", content: "\ue000".repeat(longBodyBytes / 3) }]),
  {
    name: "quadratic template, 4,001 messages",
    finding: 3,
    concerns: [],
    settings: async ({ folder }) => ({ models: [await tinyModel(folder, "quadratic", templates.quadratic)] }),
    async run(rig) {
      const messages = Array.from({ length: 4001 }, (_, i) => ({ role: i % 2 ? "assistant" : "user", content: "a" }));
      return namedReplies([await rig.chat({ messages })]);
    },
  },
  templateProbe("endless template of one model", templates.endless, "loop"),
  templateProbe("template of one model that fills memory", templates.bottomless, "fill"),
  templateProbe("template of one model that makes a huge list", templates.hugeList, "list"),
  {
    name: "endless template of one model, at its load",
    finding: 3,
    concerns: [],
    settings: async ({ folder }) => ({
      models: [await tinyModel(folder, "plain"), await tinyModel(folder, "harmful")],
    }),
    run: loadEndlessTemplate,
  },
];

/** Replaces the file of the second model while the server runs. */
async function loadEndlessTemplate(rig: Rig): Promise<Outcome> {
  const model = join(rig.folder, "harmful.gguf");
  await rig.post("/v1/models/unload", { model_id: model });
  renameSync(await tinyModel(rig.folder, "next", templates.endlessAtLoad), model);
  const reply = await rig.chat({ model });
  return { attacker: summary([reply]), isHeld: isNamed(reply) && reply.status !== 200 };
}

function openObject(name: string): object {
  return { type: "object", properties: { [name]: { type: "string" } } };
}

function schemaProbe(name: string, finding: number, schema: () => object, limitMs = 60_000): ServerProbe {
  return {
    name,
    finding,
    concerns: [],
    limitMs,
    run: async (rig) => namedReplies([await rig.chat({ grammar: { type: "json_schema", value: schema() } })]),
  };
}

function larkProbe(name: string, grammar: () => string): ServerProbe {
  return {
    name,
    finding: 2,
    concerns: [],
    run: async (rig) => namedReplies([await rig.chat({ grammar: { type: "lark", value: grammar() } })]),
  };
}

/** Returns a probe with a second model. The model's chat template attacks the server if the message is `word`. */
function templateProbe(name: string, template: string, word: string): ServerProbe {
  return {
    name,
    finding: 3,
    concerns: [],
    limitMs: 40_000,
    settings: async ({ folder }) => ({
      models: [await tinyModel(folder, "plain"), await tinyModel(folder, "harmful", template)],
    }),
    run: async (rig) => namedReplies([await rig.chat({ model: `${rig.folder}/harmful.gguf`, messages: word })]),
  };
}

/** Returns a probe that sends a conversation far longer than any context. */
function renderingProbe(name: string, messages: () => readonly object[]): ServerProbe {
  return {
    name,
    finding: 3,
    concerns: [],
    run: async (rig) => namedReplies([await rig.chat({ messages: messages() }, { key: attackerKey })]),
  };
}
