import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseArguments } from "../../../../cli/arguments.ts";
import { keyEntries } from "../../../../cli/config/keys.ts";
import { foreignCommands, foreignFlags } from "../../../../cli/foreign-flags.ts";

const parse = (line: string) => parseArguments(line.split(" "));

function assertRefused(line: string, message: string): void {
  assert.throws(() => parse(line), { name: "ServerError", code: "config_invalid", message });
}

describe("a flag of another server", () => {
  it("is refused with troupe's flag and the value that was given", () => {
    assertRefused(
      "serve -m a.gguf --ctx-size 4096",
      '"--ctx-size" is a flag of llama-server; write --max-model-len 4096 instead',
    );
    assertRefused(
      "serve --ctx-size=4096",
      '"--ctx-size" is a flag of llama-server; write --max-model-len 4096 instead',
    );
    assertRefused("serve -np 4", '"-np" is a flag of llama-server; write --max-seqs 4 instead');
    assertRefused("serve --swap-space 4", '"--swap-space" is a flag of vLLM; write --kv-swap 4GiB instead');
    assertRefused("run --served-model-name", '"--served-model-name" is a flag of vLLM; write --alias VALUE instead');
  });

  it("is refused with the reason if none is needed", () => {
    assertRefused(
      "serve -ngl 99",
      '"-ngl" is a flag of llama-server: all layers are on the GPU if the machine has one; remove it, or write --cpu to use no GPU',
    );
    assertRefused("serve --jinja", '"--jinja" is a flag of llama-server: chat templates are always run; remove it');
  });

  it("is distinguished from troupe's short flag of the same letter by its number", () => {
    assertRefused("serve -c 4096", '"-c 4096" is a flag of llama-server; write --max-model-len 4096 instead');
    assertRefused("serve -t 8", '"-t 8" is a flag of llama-server; write --threads 8 instead');
    assert.deepEqual(parse("serve -c template.jinja").flags, { "--chat-template": "template.jinja" });
  });

  it("is never a flag of troupe, unlike the suggested flag", () => {
    const own = new Set(keyEntries.flatMap(({ flags, shortFlag, key }) => (key.planned ? [] : [...flags, shortFlag])));
    for (const { names, now } of foreignFlags) {
      for (const name of names) assert.ok(!own.has(name), name);
      if (now !== undefined) assert.ok(own.has(now), `${names} -> ${now}`);
    }
  });
});

describe("a command of another program", () => {
  it("is refused with troupe's command", () => {
    assertRefused(
      "pull -m a",
      '"pull" is a command of other servers; write troupe run -m MODEL, which downloads the model if it is missing',
    );
    for (const ours of Object.values(foreignCommands)) {
      const [words = ""] = ours.split(",");
      parse(words.replace("run -m MODEL", "run -m a"));
    }
  });
});
