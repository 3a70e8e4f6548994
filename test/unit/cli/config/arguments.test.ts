import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseArguments } from "../../../../cli/arguments.ts";
import { appliesTo, keyEntries } from "../../../../cli/config/keys.ts";
import { commandsHelp, flagsHelp } from "../../../../cli/help.ts";

const parse = (line: string) => parseArguments(line.split(" ").filter((word) => word !== ""));

function assertRefused(line: string, message: string | RegExp): void {
  assert.throws(() => parse(line), { name: "ServerError", code: "config_invalid", message });
}

describe("the command line", () => {
  it("gives the command and its flags by their long names, as text", () => {
    const { command, flags } = parse("serve -p 0 -m a -m b --cpu --mmap=false -c t.jinja -j e.jinja");
    assert.equal(command, "serve");
    assert.deepEqual(flags, {
      "--port": "0",
      "--model-id": ["a", "b"],
      "--cpu": true,
      "--mmap": "false",
      "--chat-template": "t.jinja",
      "--jinja-explicit": "e.jinja",
    });
  });

  it("accepts the loader before the flags, and -v as a log level", () => {
    assert.deepEqual(parse("serve text -v").flags, { "--log-level": "debug", "--kind": "text" });
    assert.deepEqual(parse("serve -vv").flags, { "--log-level": "trace" });
    assertRefused("serve text --kind auto", '"text" means --kind text, which is also given; remove one of them');
    assertRefused("serve -v --log-level warn", '"-v" means --log-level debug, which is also given; remove one of them');
    assertRefused("serve other --kind auto", /^unexpected "other"/);
  });

  it("accepts the task of agent and the folder of run --agent as a word", () => {
    assert.deepEqual(parse("agent task").flags, { "--agent": true, "--input": "task" });
    assert.deepEqual(parse("agent --enable-shell task").flags, { "--enable-shell": true, "--input": "task" });
    assert.deepEqual(parse("agent").flags, { "--agent": true });
    assert.deepEqual(parse("run --agent src").flags, { "--agent": true, "--folder": "src" });
    assert.deepEqual(parse("run text").flags, { "--kind": "text" });
    assertRefused("agent task more", 'agent expects one task in quotes: troupe agent "TASK"; got 2 words');
    assertRefused("run --agent one two", "run expects one folder; got 2 words");
    assertRefused("agent -i one two", '"two" means --input two, which is also given; remove one of them');
  });

  it("accepts a file for from-config, with flags that override it", () => {
    const { command, file, flags } = parse("from-config -f t.toml -p 1");
    assert.deepEqual([command, file, flags], ["from-config", "t.toml", { "--port": "1" }]);
    assertRefused("from-config", "from-config expects a TOML file: from-config -f FILE; got none");
  });

  it("serves without a command", () => {
    const served = { tool: null, file: null, help: false, all: false, version: false };
    assert.deepEqual(parse(""), { ...served, command: "serve", flags: {} });
    assert.deepEqual(parse("-p 1"), { ...served, command: "serve", flags: { "--port": "1" } });
  });

  it("accepts --help and --version with or without a command", () => {
    assert.equal(parse("--help").command, null);
    assert.equal(parse("--version").command, null);
    for (const line of ["help serve", "serve --help", "serve -h"]) {
      assert.deepEqual([parse(line).command, parse(line).help, parse(line).all], ["serve", true, false], line);
    }
    assert.equal(parse("serve --help --all").all, true);
    assert.deepEqual(parse("help cache").tool, { name: "cache", args: ["--help"] });
    assert.equal(parse("help").help, true);
    assertRefused("serve --all", "--all expects --help: it lists all flags of a command");
    assertRefused("serve --hlep", 'unknown flag "--hlep"; did you mean "--help"?');
    assertRefused("help srve", 'unknown command "srve"; did you mean "serve"?');
    assert.equal(parse("--help").help, true);
    assert.equal(parse("serve -h").help, true);
    assert.equal(parse("from-config --help").help, true);
    assert.equal(parse("--version").version, true);
  });

  it("refuses a command that is not built yet", () => {
    assertRefused("update --tag 1", '"update" is not supported yet by this version of troupe');
  });

  it("rejects unknown words, with the nearest known one", () => {
    assertRefused("srve", 'unknown command "srve"; did you mean "serve"?');
    assertRefused("serve --prot 1", 'unknown flag "--prot"; did you mean "--port"?');
    assertRefused("serve -z", 'unknown flag "-z"; see --help');
    assertRefused("serve model.gguf", /^unexpected "model.gguf"; use -m for a model/);
  });

  it("reads run like serve, and leaves the arguments of cache and login to them", () => {
    const { command, flags } = parse("run text -m a -i hello");
    assert.equal(command, "run");
    assert.deepEqual(flags, { "--model-id": ["a"], "--input": "hello", "--kind": "text" });
    assert.deepEqual(parse("cache delete -m a --help").tool, { name: "cache", args: ["delete", "-m", "a", "--help"] });
    assert.deepEqual(parse("login").tool, { name: "login", args: [] });
    assert.equal(parse("serve").tool, null);
  });

  it("accepts a boolean flag alone, before its value, and joined to it", () => {
    assert.deepEqual(parse("run --thinking -m a").flags, { "--model-id": ["a"], "--thinking": "true" });
    assert.deepEqual(parse("run --thinking false").flags, { "--thinking": "false" });
    assert.deepEqual(parse("run --thinking=false --mmap").flags, { "--thinking": "false", "--mmap": "true" });
  });

  it("accepts a flag under its other names", () => {
    assert.deepEqual(parse("run --enable-thinking").flags, { "--thinking": "true" });
    assert.deepEqual(parse("serve --agentic --code-exec-permission ask").flags, {
      "--agent": true,
      "--agent-permission": "ask",
    });
    assert.deepEqual(parse("serve --lora a=b --lora-modules c=d").flags, { "--lora": ["a=b", "c=d"] });
  });

  it("accepts several adapters after one flag, and nothing else", () => {
    const expected = { "--kind": "text", "--lora": ["a=b", "c=d", '{"alias":"e"}', "f=g"], "--model-id": ["x=y"] };
    const argv = ["serve", "text", "--lora-modules", "a=b", "c=d", '{"alias":"e"}', "-m", "x=y", "--lora=f=g"];
    assert.deepEqual(parseArguments(argv).flags, expected);
    assertRefused("serve --lora a=b c", /^unexpected "c"/);
    assertRefused("serve --port 1 a=b", /^unexpected "a=b"/);
  });

  it("keeps every line of a value", () => {
    for (const text of ["one\ntwo", "- one\n- two", "--one=1\ntwo"]) {
      const joined = parseArguments(["run", `--input=${text}`]);
      assert.deepEqual(joined.flags, { "--input": text });
    }
    for (const text of ["one\ntwo", "- one\n- two"]) {
      for (const flag of ["--input", "-i"])
        assert.deepEqual(parseArguments(["run", flag, text]).flags, { "--input": text });
    }
  });

  it("accepts words that begin with a hyphen and are no flags", () => {
    assert.deepEqual(parse("serve --presence-penalty -1.5 -m x").flags, {
      "--presence-penalty": "-1.5",
      "--model-id": ["x"],
    });
    assert.deepEqual(parseArguments(["run", "-i", "- a list", "--image", "-.5", "--cpu"]).flags, {
      "--input": "- a list",
      "--image": ["-.5"],
      "--cpu": true,
    });
    assert.deepEqual(parseArguments(["agent", "- a list"]).flags, { "--agent": true, "--input": "- a list" });
    assertRefused("serve --cpu -5", 'unexpected "-5"; use -m for a model, and flags for everything else: see --help');
  });

  it("treats -f as the file of from-config, and as the model's file elsewhere", () => {
    assert.equal(parse("from-config -f t.toml --quantized-file q.gguf").flags["--quantized-file"], "q.gguf");
    const { file, flags } = parse("serve -f q.gguf");
    assert.deepEqual([file, flags], [null, { "--quantized-file": "q.gguf" }]);
  });

  it("translates a flag of 0.9.4 with its value", () => {
    assertRefused("serve --pa-gpu-mem 4096", '"--pa-gpu-mem" is a flag of 0.9.4; write --kv-cache 4096MiB instead');
    assertRefused("serve --pa-context-len=65536", /write --kv-cache 65536tokens instead$/);
    assertRefused("serve --pa-ctxt-len", /write --kv-cache Ntokens instead$/);
    assertRefused("serve --max-batch-size 8", /write --max-seqs 8 instead$/);
  });

  it("quotes no token", () => {
    for (const line of [
      "serve literal:hf_x",
      "serve --token-source -p literal:hf_x",
      "serve --token-sorce literal:hf_x",
    ]) {
      assert.throws(
        () => parse(line),
        ({ message }: Error) => !message.includes("hf_x"),
      );
    }
  });

  it("refuses a flag without its value and a switch with one", () => {
    assertRefused("serve --port", "--port expects a whole number from 0 to 65535; got none");
    assertRefused("serve -p --cpu", '-p expects a whole number from 0 to 65535; got "--cpu"');
    assertRefused("serve --cpu=false", '--cpu is a switch and takes no value; got "--cpu=false"');
  });
});

describe("the help text", () => {
  it("names every built flag of the command, its default, and no flag of another", () => {
    for (const command of ["serve", "run", "bench", "tune"] as const) {
      const help = flagsHelp(command, true);
      for (const entry of keyEntries.filter(({ flags }) => flags.length > 0)) {
        assert.equal(
          new RegExp(`${entry.flag}\\b(?!-)`).test(help),
          appliesTo(entry, command) && !entry.key.planned,
          `${command} ${entry.flag}`,
        );
      }
    }
    assert.match(flagsHelp("serve", true), /-p, --port N .*\[default: 1234\]/);
    assert.match(flagsHelp("run", true), /--max-seqs N .*\n? *.*\[default: 1\]/);
    assert.match(
      flagsHelp("serve", true),
      /\n\d+ further flags are not supported yet; docs\/configuration\.md lists all\.\n$/,
    );
    assert.match(commandsHelp(), /\n {2}serve .*\n/);
  });

  it("begins with three examples and the everyday flags", () => {
    for (const command of ["serve", "run", "bench", "tune"] as const) {
      const help = flagsHelp(command, false);
      assert.equal(help.match(/^ {2}troupe /gm)?.length, 3, command);
      for (const [, line = ""] of help.matchAll(/^ {2}troupe (.*)$/gm)) parse(line.replace(/".*"/, "prompt"));
      const shown = help.match(/^ {2}(?:-\w, | {4})--/gm) ?? [];
      assert.ok(shown.length >= 8 && shown.length <= 14, `${command} shows ${shown.length} flags`);
      assert.ok(help.endsWith(`All flags: troupe ${command} --help --all\n`));
    }
  });

  it("keeps to the width of a terminal", () => {
    const commands = ["serve", "run", "bench", "tune"] as const;
    const texts = commands.flatMap((command) => [flagsHelp(command, false), flagsHelp(command, true)]);
    const help = [...texts, commandsHelp()].join("\n");
    for (const line of help.split("\n")) assert.ok(line.length <= 100, line);
  });
});
