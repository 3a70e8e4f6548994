import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { checkAliases } from "../../../../cli/run/commands.ts";
import { resolve } from "../config/resolve.ts";

describe("the adapters of a conversation", () => {
  it("have names other than the name for no adapter", () => {
    const configOf = (alias: string) => resolve({ command: "run", flags: { "--lora": [`${alias}=/adapter`] } });
    checkAliases(configOf("None"));
    assert.throws(() => checkAliases(configOf("none")), {
      code: "config_invalid",
      message: 'lora expects an alias other than "none", which /adapter uses for the base model; choose another alias',
    });
  });
});
