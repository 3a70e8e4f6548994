import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { describe, it } from "node:test";
import { completionScript } from "../../../../cli/commands/completions.ts";

/** Shells that may be installed on this machine. Bash is always installed where the tests run. */
const parsers = { bash: "bash", zsh: "zsh", fish: "fish" } as const;

function isInstalled(shell: string): boolean {
  try {
    execFileSync(shell, ["-c", "true"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** Returns the completions that bash offers for these words, of which the last is incomplete. */
function offered(...words: string[]): string[] {
  const script = `${completionScript("bash")}
COMP_WORDS=(troupe ${words.map((word) => `'${word}'`).join(" ")})
COMP_CWORD=${words.length}
_troupe
printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", script], { encoding: "utf8" }).split("\n").filter(Boolean);
}

describe("the completion scripts", () => {
  for (const [shell, command] of Object.entries(parsers)) {
    it(`are ones that ${shell} can read`, { skip: !isInstalled(command) }, () => {
      const script = completionScript(shell as keyof typeof parsers);
      execFileSync(command, ["-n"], { input: script });
    });
  }

  it("name each flag of a command for every shell", () => {
    for (const shell of ["bash", "zsh", "fish"] as const) {
      const script = completionScript(shell);
      for (const name of ["mcp-port", "paged-attn", "max-seqs", "prompt-len"]) assert.match(script, new RegExp(name));
      assert.doesNotMatch(script, /max-image-length/, "what is not built is not offered");
    }
  });
});

describe("completion in bash", { skip: !isInstalled("bash") }, () => {
  it("offers commands first, then the flags of the command", () => {
    assert.deepEqual(offered("se"), ["serve"]);
    assert.deepEqual(offered("serve", "--mcp-p"), ["--mcp-port"]);
    assert.deepEqual(offered("bench", "--mcp-p"), []);
    assert.deepEqual(offered("cache", "l"), ["list"]);
    assert.deepEqual(offered("completions", ""), ["bash", "zsh", "fish", "--help", "-h"]);
  });

  it("offers all flags of the commands without settings", () => {
    assert.deepEqual(offered("cache", "-"), ["--json", "--help", "-h", "--model-id", "-m", "--yes", "-y"]);
    assert.deepEqual(offered("doctor", "--q"), ["--quantized-file"]);
    assert.deepEqual(offered("uqff", "report", "--w"), ["--write"]);
    assert.deepEqual(offered("quantize", "--uqff-"), ["--uqff-base-model", "--uqff-repo-id"]);
    assert.deepEqual(offered("quantize", "--dtype", "bf"), ["bf16"]);
  });

  it("offers the values of a flag if it has any", () => {
    assert.deepEqual(offered("serve", "--engine", ""), ["auto", "llama", "wasm", "remote"]);
    assert.deepEqual(offered("serve", "--paged-attn", "o"), ["on", "off"]);
    assert.deepEqual(offered("serve", "--port", ""), []);
  });

  it("lets bash offer files if it has nothing to offer", () => {
    const script = `${completionScript("bash")}\ncomplete -p troupe`;
    assert.match(execFileSync("bash", ["-c", script], { encoding: "utf8" }), /-o default/);
    assert.deepEqual(offered("from-config", "--file", ""), []);
  });

  it("finds the command after flags, and offers commands if there is none yet", () => {
    assert.deepEqual(offered("-v", "se"), ["serve"]);
    assert.deepEqual(offered("-v", "serve", "--mcp-p"), ["--mcp-port"]);
    assert.deepEqual(offered("serve", "-v", "--mcp-p"), ["--mcp-port"]);
  });
});
