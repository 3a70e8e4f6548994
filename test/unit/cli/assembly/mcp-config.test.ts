// MCP configuration file: its allowed content, and its error messages.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { readMcpConfig } from "../../../../cli/assembly/agents/mcp-config.ts";
import { mcpServerSettings } from "../../../../cli/assembly/agents/mcp-settings.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-mcp-config-"));
const path = join(folder, "mcp.json");
after(() => rmSync(folder, { recursive: true, force: true }));

/** Returns a reference to an environment variable, as values in the file contain it. */
const reference = (name: string): string => `\${${name}}`;

async function settingsOf(content: unknown, environment: Readonly<Record<string, string>> = {}) {
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  const config = await readMcpConfig(path);
  return { ...config, settings: mcpServerSettings(config, path, environment) };
}

async function assertRefused(content: unknown, message: RegExp): Promise<void> {
  await assert.rejects(settingsOf(content), (error: Error & { code?: string }) => {
    assert.equal(error.code, "config_invalid");
    assert.match(error.message, message);
    return true;
  });
}

const files = { name: "files", source: { type: "Process", command: "npx" } };
const remote = { name: "remote", source: { type: "Http", url: "https://example.org/mcp" } };

describe("the configuration of MCP servers", () => {
  it("has defaults", async () => {
    const { settings, ...shared } = await settingsOf({ servers: [files, remote] });
    const { servers: _, fieldOf: __, ...limits } = shared;
    assert.deepEqual(limits, { auto_register_tools: true, tool_timeout_secs: 30, max_concurrent_calls: 10 });
    const rest = { toolPrefix: null, resources: null, callTimeoutMs: 30_000, secrets: [] };
    const source = { type: "process", command: "npx", args: [], environment: {}, workFolder: null };
    assert.deepEqual(settings, [
      { id: "files", name: "files", source, ...rest },
      { id: "remote", name: "remote", source: { type: "http", url: "https://example.org/mcp", headers: {} }, ...rest },
    ]);
  });

  it("accepts all fields, and omits servers that are not enabled", async () => {
    const { settings } = await settingsOf({
      servers: [
        { ...files, enabled: false },
        {
          name: "Docs",
          id: "docs",
          source: { type: "WebSocket", url: "wss://example.org", headers: { "x-team": "blue" }, timeout_secs: 5 },
          tool_prefix: "docs",
          bearer_token: "secret-token",
          resources: ["file:///docs/*"],
        },
      ],
      tool_timeout_secs: 60,
    });
    assert.deepEqual(settings, [
      {
        id: "docs",
        name: "Docs",
        source: {
          type: "websocket",
          url: "wss://example.org",
          headers: { "x-team": "blue", authorization: "Bearer secret-token" },
        },
        toolPrefix: "docs",
        resources: ["file:///docs/*"],
        callTimeoutMs: 5000,
        secrets: ["Bearer secret-token", "secret-token"],
      },
    ]);
  });

  it("fills in environment variables, and treats the values as secrets", async () => {
    const env = { A: reference("KEY"), B: `key ${reference("KEY")}!`, C: "env:KEY", D: "$KEY" };
    const source = { type: "Process", command: "x", env };
    const { settings } = await settingsOf({ servers: [{ name: "a", source }] }, { KEY: "value-1" });
    assert.deepEqual(settings[0]?.source.type === "process" && settings[0].source.environment, {
      A: "value-1",
      B: "key value-1!",
      C: "value-1",
      D: "$KEY",
    });
    assert.deepEqual(settings[0]?.secrets, ["key value-1!", "value-1", "value-1"]);
  });

  it("accepts the format of other MCP clients", async () => {
    const { settings } = await settingsOf({
      mcpServers: {
        files: { command: "npx", args: ["-y", "server"], env: { A: "b" }, cwd: "/srv" },
        remote: { url: "https://example.org/mcp", headers: { a: "b" } },
        old: { type: "sse", url: "https://example.org/sse" },
        socket: { url: "ws://example.org" },
      },
      tool_timeout_secs: 7,
    });
    assert.deepEqual(
      settings.map(({ name, source, callTimeoutMs }) => [name, source.type, callTimeoutMs]),
      [
        ["files", "process", 7000],
        ["remote", "http", 7000],
        ["old", "sse", 7000],
        ["socket", "websocket", 7000],
      ],
    );
  });

  it("is refused with the name of the wrong field", async () => {
    for (const [content, message] of [
      ["{", /^mcp_config ".*mcp\.json" expects JSON; got text that is not JSON$/],
      [{ servers: [{ ...files, extra: 1 }] }, /servers\.0 is wrong: Unrecognized key: "extra"/],
      [{ servers: [files], timeout: 1 }, /Unrecognized key: "timeout"/],
      [{ servers: [{ name: "a", source: { type: "Process" } }] }, /servers\.0\.source\.command is wrong/],
      [{ servers: [{ name: "a", source: { type: "Pipe" } }] }, /servers\.0\.source\.type/],
      [{ servers: [{ ...remote, source: { type: "Http", url: "ftp://x" } }] }, /servers\.0\.source\.url is wrong/],
      [{ servers: [{ ...files, tool_prefix: "a b" }] }, /servers\.0\.tool_prefix is wrong: expects 1 to 64 letters/],
      [{ servers: [files], tool_timeout_secs: 0 }, /tool_timeout_secs is wrong/],
      [{ servers: [files, files] }, /servers expects a different id \(or name\) for each server; got "files" twice/],
      [{ servers: [{ ...files, bearer_token: "t" }] }, /servers\.0\.bearer_token is for servers with a url/],
      [
        { servers: [{ ...remote, bearer_token: reference("NO_SUCH") }] },
        /servers\.0\.bearer_token needs the environment variable NO_SUCH, which is not set/,
      ],
      [{ mcpServers: { a: { command: "x", url: "y" } } }, /mcpServers\.a expects \{command, args, env, cwd\} or \{url/],
      [{ mcpServers: { a: { url: "ftp://x" } } }, /mcpServers\.a\.url is wrong/],
      [{ mcpServers: { a: { command: "x".repeat(32_769) } } }, /mcpServers\.a\.command is wrong/],
      [
        { mcpServers: { a: { command: "x" }, b: { command: "x", env: { "T.1": reference("NO_SUCH") } } } },
        /: mcpServers\.b\.env\.T\.1 needs the environment variable NO_SUCH, which is not set/,
      ],
    ] as const) {
      await assertRefused(content, message);
    }
    await assert.rejects(
      readMcpConfig(join(folder, "missing.json")),
      /mcp_config ".*missing\.json" cannot be read: ENOENT/,
    );
    writeFileSync(path, " ".repeat(2 ** 20 + 1));
    await assert.rejects(readMcpConfig(path), /it has 1048577 bytes; at most 1048576 are allowed/);
  });
});
