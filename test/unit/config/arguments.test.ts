import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseArguments } from "../../../cli/arguments.ts";
import { commandsHelp, flagsHelp } from "../../../cli/help.ts";
import { appliesTo, keyEntries } from "../../../runtime/config/keys.ts";

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

  it("takes the loader before the flags, and -v as a log level", () => {
    assert.deepEqual(parse("serve text -v").flags, { "--log-level": "debug", "--kind": "text" });
    assert.deepEqual(parse("serve -vv").flags, { "--log-level": "trace" });
    assertRefused("serve text --kind auto", '"text" stands for --kind text; give one of them, not both');
    assertRefused("serve -v --log-level warn", '"-v" stands for --log-level debug; give one of them, not both');
    assertRefused("serve other --kind auto", /^unexpected "other"/);
  });

  it("takes a file for from-config, with flags over it", () => {
    const { command, file, flags } = parse("from-config -f t.toml -p 1");
    assert.deepEqual([command, file, flags], ["from-config", "t.toml", { "--port": "1" }]);
    assertRefused("from-config", "from-config expects a TOML file: from-config -f FILE; got none");
  });

  it("asks for help or the version with or without a command", () => {
    assert.deepEqual(parse(""), { command: null, flags: {}, file: null, help: false, version: false });
    assert.equal(parse("--help").help, true);
    assert.equal(parse("serve -h").help, true);
    assert.equal(parse("from-config --help").help, true);
    assert.equal(parse("--version").version, true);
  });

  it("refuses a command that is not built yet", () => {
    assertRefused("run", '"run" is not supported yet by this version of troupe');
    assertRefused("tune --json", '"tune" is not supported yet by this version of troupe');
  });

  it("refuses what it does not know, with the nearest it does", () => {
    assertRefused("srve", 'unknown command "srve"; did you mean "serve"?');
    assertRefused("serve --prot 1", 'unknown flag "--prot"; did you mean "--port"?');
    assertRefused("serve -z", 'unknown flag "-z"; see --help');
    assertRefused("serve model.gguf", /^unexpected "model.gguf"; a model is named with -m/);
    assertRefused("-p 1", /^a command is expected before the flags/);
  });

  it("refuses what is not built yet, whether or not a value follows", () => {
    for (const flag of ["--enable-search", "--isq", "-n", "-l", "-f", "--paged-attn", "--image"]) {
      for (const value of ["", " 4"]) {
        assertRefused(`serve ${flag}${value}`, `"${flag}" is not supported yet by this version of troupe`);
      }
    }
  });

  it("refuses a flag without its value and a switch with one", () => {
    assertRefused("serve --port", "--port expects a whole number from 0 to 65535; got none");
    assertRefused("serve -p --cpu", '-p expects a whole number from 0 to 65535; got "--cpu"');
    assertRefused("serve --seed -1", '--seed expects a whole number from 0 to 4294967295; got "-1"');
    assertRefused("serve --cpu=false", '--cpu is a switch and takes no value; got "--cpu=false"');
  });
});

describe("the help text", () => {
  it("names every flag of the command, its default, and no flag of another", () => {
    for (const command of ["serve", "bench"] as const) {
      const help = flagsHelp(command);
      for (const entry of keyEntries.filter(({ key }) => !key.fileOnly)) {
        assert.equal(
          new RegExp(`${entry.flag}\\b(?!-)`).test(help),
          appliesTo(entry, command),
          `${command} ${entry.flag}`,
        );
      }
    }
    assert.match(flagsHelp("serve"), /-p, --port N .*\[default: 1234\]/);
    assert.match(commandsHelp(), /\n {2}serve .*\n/);
  });

  it("keeps to the width of a terminal", () => {
    for (const line of flagsHelp("serve").split("\n")) assert.ok(line.length <= 100, line);
  });
});
