// MCP client functions: tool names, conversion of results, and limits on text lengths and durations.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it } from "node:test";
import { maxResultBytes } from "../../../../actors/api/agent/tools.ts";
import { CallTimer, totalLimitFactor } from "../../../../actors/mcp-client/call-timer.ts";
import { promptResult, resourceResult, toolResult } from "../../../../actors/mcp-client/results.ts";
import { nameTools } from "../../../../actors/mcp-client/tool-names.ts";
import { boundedFetch } from "../../../../actors/mcp-client/transports/bounded-fetch.ts";
import { maxMessageBytes } from "../../../../actors/mcp-client/transports/limits.ts";
import { LineReader } from "../../../../actors/mcp-client/transports/line-reader.ts";
import { stderrLines } from "../../../../actors/mcp-client/transports/stderr-lines.ts";
import { matchesAny } from "../../../../actors/mcp-client/uri-patterns.ts";
import { FakeClock } from "../../../fixtures/fakes/fake-clock.ts";

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

describe("names of the tools of MCP servers", () => {
  const server = (name: string, toolPrefix: string | null, ...tools: readonly string[]) => ({
    settings: { id: name, name, toolPrefix },
    tools: tools.map((tool) => ({ action: "call" as const, tool, name: tool, description: null, parameters: {} })),
  });
  const named = (servers: readonly ReturnType<typeof server>[], reserved: readonly string[] = []) => {
    const said: string[] = [];
    const tools = nameTools(servers, reserved, (message) => said.push(message));
    return { names: tools.map(({ spec }) => spec.name), said };
  };

  it("have the prefix of their server", () => {
    assert.deepEqual(named([server("a", "p", "x"), server("b", null, "x")]), { names: ["p_x", "x"], said: [] });
  });

  it("are replaced if they are taken by another server or a built-in tool", () => {
    const { names, said } = named([server("a", null, "x", "shell"), server("b", null, "x")], ["shell"]);
    assert.deepEqual(names, ["x", "a_shell", "b_x"]);
    assert.deepEqual(said, [
      'tool "shell" of MCP server "a" is called "a_shell": another tool has its name',
      'tool "x" of MCP server "b" is called "b_x": another tool has its name',
    ]);
  });

  it("have only characters that models can use", () => {
    const { names, said } = named([server("a", null, "get weather!", "y".repeat(200), "é")]);
    assert.deepEqual(names, ["get_weather_", "y".repeat(128), "_"]);
    assert.match(said[0] ?? "", /is called "get_weather_": its name has characters or a length/);
  });

  it("that cannot be made unique are left out, with a message", () => {
    const { names, said } = named([server("a", null, "x", "x", "x")]);
    assert.deepEqual(names, ["x", "a_x"]);
    assert.match(said.at(-1) ?? "", /is not offered/);
  });
});

describe("results of MCP servers", () => {
  it("have the texts of all parts, and PNG images", () => {
    const { content, images, status } = toolResult({
      content: [
        { type: "text", text: "one" },
        { type: "image", data: png, mimeType: "image/png" },
        { type: "image", data: "/9j/4AAQ", mimeType: "image/jpeg" },
        { type: "image", data: `${png.slice(0, 20)}<script>`, mimeType: "image/png" },
        { type: "audio", data: "UklGRg==", mimeType: "audio/wav" },
        { type: "resource_link", uri: "file:///a", name: "a" },
        { type: "resource", resource: { uri: "file:///b", text: "inner" } },
        { type: "resource", resource: { uri: "file:///c", blob: "AAAA", mimeType: "application/zip" } },
      ],
    });
    assert.equal(status, "success");
    assert.deepEqual(images, [png]);
    assert.equal(
      content,
      `one
[image]
[image image/jpeg 6 bytes: not shown]
[image image/png 21 bytes: not shown]
[audio audio/wav 6 bytes: not shown]
[resource a: file:///a]
[resource file:///b]
inner
[resource file:///c application/zip 3 bytes: not shown]`,
    );
  });

  it("have the structured content if there is no text, and say if the tool failed", () => {
    assert.equal(toolResult({ content: [], structuredContent: { a: 1 } }).content, '{"a":1}');
    const both = { content: [{ type: "text" as const, text: "t" }], structuredContent: { a: 1 }, isError: true };
    assert.deepEqual(toolResult(both), { status: "error", content: "t", images: [] });
  });

  it("are bounded, with a note", () => {
    const { content } = toolResult({ content: [{ type: "text", text: "é".repeat(100_000) }] });
    assert.ok(Buffer.byteLength(content) <= maxResultBytes);
    assert.match(content, /\n\[\d+ bytes left out\]\n/);
    const images = Array.from({ length: 3 }, () => ({
      type: "image" as const,
      data: png.slice(0, 20).padEnd(4 * 2 ** 20, "A"),
      mimeType: "",
    }));
    assert.equal(toolResult({ content: images }).images.length, 2);
  });

  it("of prompts and resources are text", () => {
    const messages = [{ role: "user" as const, content: { type: "text" as const, text: "hi" } }];
    assert.equal(promptResult({ description: "d", messages }).content, "d\n\nuser: hi");
    assert.equal(
      resourceResult({
        contents: [
          { uri: "a", text: "x" },
          { uri: "b", blob: "AAAA" },
        ],
      }).content,
      "x\n[resource b 3 bytes: not shown]",
    );
  });
});

describe("patterns of readable resources", () => {
  it("match whole URIs; * stands for any text", () => {
    for (const [pattern, uri, matches] of [
      ["file:///a", "file:///a", true],
      ["file:///a", "file:///ab", false],
      ["file:///docs/*", "file:///docs/x/y", true],
      ["file:///docs/*", "file:///other", false],
      ["*.md", "file:///a.md", true],
      ["a*b*c", "aXbYc", true],
      ["a*b*c", "aXcYb", false],
      ["ab*b", "ab", false],
      ["*", "", true],
    ] as const) {
      assert.equal(matchesAny([pattern], uri), matches, `${pattern} ${uri}`);
    }
    assert.equal(matchesAny([], "a"), false);
    for (const way of ["../../etc/passwd", "%2e%2e/secret", "a/%2E./b", "./x", "..%2fx", "..\\x", ".."]) {
      assert.equal(matchesAny(["file:///srv/docs/*"], `file:///srv/docs/${way}`), false, way);
    }
    assert.ok(matchesAny(["file:///srv/docs/*"], "file:///srv/docs/a..b/.c/d.txt"));
  });
});

describe("the time limit of a call", () => {
  it("begins again with progress, up to a total", async () => {
    const clock = new FakeClock();
    let ended = 0;
    const timer = new CallTimer(clock, 1000, () => ended++);
    for (let i = 0; i < totalLimitFactor * 2; i++) {
      await clock.advance(499);
      timer.onProgress();
    }
    assert.equal(ended, 0);
    await clock.advance(20);
    assert.equal(ended, 1);
  });

  it("does not count the time in which the user is asked", async () => {
    const clock = new FakeClock();
    let ended = 0;
    const timer = new CallTimer(clock, 1000, () => ended++);
    timer.pause();
    timer.pause();
    await clock.advance(100_000);
    timer.resume();
    timer.onProgress();
    await clock.advance(100_000);
    timer.resume();
    await clock.advance(999);
    assert.equal(ended, 0);
    await clock.advance(1);
    assert.equal(ended, 1);
  });
});

describe("the output of server processes", () => {
  it("is divided into lines, wherever its pieces end", () => {
    const lines: string[] = [];
    const reader = new LineReader(10, (line) => lines.push(line));
    for (const byte of Buffer.from("a\r\n\néé\nlast")) assert.ok(reader.add(Buffer.from([byte])));
    assert.deepEqual(lines, ["a", "", "éé"]);
    assert.equal(reader.add(Buffer.from("0123456")), false, "the line is longer than 10 bytes");
  });

  it("to stderr is logged up to 50 lines a second, in lines of bounded length", async () => {
    const clock = new FakeClock();
    const lines: string[] = [];
    const read = stderrLines(clock, (line) => lines.push(line));
    read(Buffer.from("x\n".repeat(80)));
    assert.equal(lines.length, 50);
    await clock.advance(1000);
    read(Buffer.from("z\n"));
    assert.deepEqual(lines.slice(50), ["(30 more lines were left out)", "z"]);
  });

  it("to stderr is read in pieces: characters stay whole, and a line that is cut says so", () => {
    const lines: string[] = [];
    const read = stderrLines(new FakeClock(), (line) => lines.push(line));
    for (const byte of Buffer.from("größer 👍\n")) read(Buffer.from([byte]));
    assert.deepEqual(lines.splice(0), ["größer 👍"]);
    const long = "y".repeat(20_000);
    read(Buffer.from(`${long}\nwhole\n${long}`));
    read(Buffer.from("the rest\nnext\n"));
    assert.deepEqual(
      lines.map((line) => (line.startsWith("y") ? line.at(-1) : line)),
      ["…", "whole", "…", "next"],
    );
    assert.ok(lines.every(({ length }) => length < 10_000));
  });
});

describe("responses of MCP servers over HTTP", () => {
  const megabyte = Buffer.alloc(2 ** 20, "x");

  async function fetched(
    type: string,
    pieces: readonly Buffer[],
  ): Promise<{ readonly bytes: number; readonly faults: number }> {
    const server = createServer((_, response) => {
      response.writeHead(200, { "content-type": type });
      for (const piece of pieces) response.write(piece);
      response.end();
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    let faults = 0;
    try {
      const response = await boundedFetch(() => faults++)(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
      const bytes = await response.arrayBuffer().then(
        ({ byteLength }) => byteLength,
        () => -1,
      );
      return { bytes, faults };
    } finally {
      server.close();
      server.closeAllConnections();
    }
  }

  it("are read up to 16 MiB", async () => {
    const count = maxMessageBytes / megabyte.length;
    assert.deepEqual(await fetched("application/json", Array(count).fill(megabyte)), {
      bytes: maxMessageBytes,
      faults: 0,
    });
    assert.deepEqual(await fetched("application/json", Array(count + 1).fill(megabyte)), { bytes: -1, faults: 1 });
  });

  it("that are event streams may be longer, but not one event", async () => {
    const event = Buffer.concat([Buffer.from("data: "), megabyte, Buffer.from("\n\n")]);
    assert.deepEqual(await fetched("text/event-stream", Array(20).fill(event)), {
      bytes: 20 * event.length,
      faults: 0,
    });
    const crlf = Buffer.concat([Buffer.from("data: "), megabyte, Buffer.from("\r\n\r\n")]);
    assert.equal((await fetched("text/event-stream", Array(20).fill(crlf))).bytes, 20 * crlf.length);
    const endless = Buffer.concat([Buffer.from("data: "), megabyte, Buffer.from("\n")]);
    assert.deepEqual(await fetched("text/event-stream", Array(20).fill(endless)), { bytes: -1, faults: 1 });
  });
});
