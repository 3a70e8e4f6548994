import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { settingsInForce } from "../../../../cli/assembly/settings-in-force.ts";
import { resolveConfig } from "../../../../cli/config/config.ts";
import { groupNames, groups, isPerModel } from "../../../../cli/config/keys.ts";
import type { TroupeSettings } from "../../../../cli/config/settings.ts";

/** Each section of a settings file. The type of the settings must allow all of them. */
const settings = {
  maxSeqs: 4,
  models: [
    {
      modelId: "/models/a.gguf",
      alias: "a",
      sampling: { temperature: 0 },
      format: { mmproj: "/models/p.gguf" },
      embedding: { pooling: "tokens" },
      adapter: { lora: [{ alias: "x", source: "/adapters/x" }] },
      quantization: { isq: 4 },
      device: { cpu: true },
      multimodal: { maxNumImages: 1 },
      remote: { url: null },
    },
  ],
  server: { maxToolRounds: 3 },
  pagedAttn: { kvCache: "4GiB" },
  sandbox: { mode: "off" },
  search: { provider: "duckduckgo" },
  speech: { threads: 1 },
  diffusion: { threads: 1 },
  troupe: { kvSwap: 2 ** 20 },
} as const satisfies TroupeSettings;

describe("the settings of a program", () => {
  it("have every section of a settings file, with its values", () => {
    const config = resolveConfig({ command: "serve", flags: {}, environment: {}, settings, defaultModel: "none" });
    const [model] = config.models;
    assert.deepEqual(config.pagedAttn.kvCache, { bytes: 4 * 2 ** 30 });
    assert.deepEqual(model?.adapter.lora, [{ alias: "x", source: "/adapters/x", revision: "main" }]);
    assert.deepEqual([model?.quantization.isq, model?.sampling.temperature, model?.multimodal.maxNumImages], [4, 0, 1]);
    const sections = groupNames.filter((group) => !["", "models", null].includes(groups[group].section));
    const given = [...Object.keys(settings), ...Object.keys(settings.models[0])];
    assert.deepEqual(
      sections.filter((group) => !given.includes(group)),
      [],
    );
    assert.ok(sections.filter(isPerModel).length === 8);
  });

  it("have what the command takes only from variables, and secrets are not shown", () => {
    const own = {
      enableSearch: true,
      search: { provider: "brave", apiKey: "SECRET-1" },
      troupe: { toolDispatchSecret: "SECRET-2" },
      server: {
        allowRuntimeLoraUpdating: true,
        loraAdapterRoot: "/adapters",
        toolDispatchUrl: "http://localhost:1/tools",
      },
    } as const satisfies TroupeSettings;
    const resolved = (settings: TroupeSettings) =>
      resolveConfig({ command: "serve", flags: {}, environment: {}, settings, defaultModel: "none" });
    const config = resolved(own);
    assert.deepEqual([config.search.apiKey, config.troupe.toolDispatchSecret], ["SECRET-1", "SECRET-2"]);
    assert.deepEqual([config.server.allowRuntimeLoraUpdating, config.server.loraAdapterRoot], [true, "/adapters"]);
    assert.doesNotMatch(JSON.stringify(settingsInForce(config)), /SECRET/);
    const wrong = { ...own, search: { provider: "brave", apiKey: ["SECRET-3"] as unknown as string } } as const;
    assert.throws(() => resolved(wrong), /^(?!.*SECRET-3).*search\.apiKey expects a key; got another value/);
    assert.throws(() => resolved({ ...own, server: { loraAdapterRoot: "" } }), /loraAdapterRoot expects a folder/);
  });
});
