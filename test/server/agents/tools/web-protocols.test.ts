// biome-ignore-all lint/suspicious/noExplicitAny: the bodies of three protocols are read field by field
// Web search in three protocols: a scripted model, a fake web, and the official clients against the real server.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import type { FoundPage, Web, WebOptions } from "../../../../actors/api/agent/web.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { checked, post } from "../clients.ts";
import { type AgentRig, startAgents, type Turn } from "../rig.ts";

const pages: readonly FoundPage[] = [
  { title: "Bonn", url: "https://bonn.example/facts", description: "About Bonn", content: "Bonn has 330 000 people." },
  { title: "Rhine", url: "https://rhine.example/a_(b)/", description: "A river", content: "The Rhine is long." },
];

/** Fake web that records the searches and the page requests. */
class FakeWeb implements Web {
  readonly asked: { readonly query?: string; readonly url?: string; readonly options: WebOptions }[] = [];
  failure: ServerError | null = null;

  async search({ query, options }: { readonly query: string; readonly options: WebOptions }) {
    this.asked.push({ query, options });
    if (this.failure !== null) throw this.failure;
    return pages;
  }

  async read({ url, options }: { readonly url: string; readonly options: WebOptions }) {
    this.asked.push({ url, options });
    if (this.failure !== null) throw this.failure;
    return { url, title: "A page", content: "Text of the page.", isCut: false };
  }
}

const web = new FakeWeb();
let rig: AgentRig;
let openai: OpenAI;
let anthropic: Anthropic;
before(async () => {
  rig = await startAgents({ web, settings: { groups: ["web_search"] } });
  openai = new OpenAI({ baseURL: `${rig.url}/v1`, apiKey: "none", maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: rig.url, apiKey: "none", maxRetries: 0 });
});
beforeEach(() => {
  web.asked.length = 0;
  web.failure = null;
});
after(async () => {
  await rig.stop();
});

const searches = (query = "people of Bonn"): Turn => ({ calls: [["service_search_the_web", { query }]] });
const reads = (url = "https://bonn.example/facts"): Turn => ({
  calls: [["service_website_content_extractor", { url }]],
});
const answer = "It has [330 000](https://bonn.example/facts), at https://rhine.example/a_(b)/. Not https://x.example/.";
const link = "[330 000](https://bonn.example/facts)";
const bare = "https://rhine.example/a_(b)/";
const places = [link, bare].map((part) => [answer.indexOf(part), answer.indexOf(part) + part.length]);
const hi = { role: "user", content: "How many people live in Bonn?" } as const;
const offered = () => rig.inference.lastRun.request.tools?.specs ?? [];
/** Reduces a chat to the roles, texts and tool calls of its messages. */
const shape = (chat: readonly any[] | undefined) =>
  (chat ?? []).map(({ role, content, toolCalls = [] }) => [
    role,
    content,
    toolCalls.map((call: any) => [call.name, JSON.parse(call.arguments)]),
  ]);

describe("web search in chat completions", () => {
  const body = { model: "tiny", messages: [hi], web_search_options: {} };

  it("answers with the annotations of the pages that the text names, streamed and not", async () => {
    rig.script(searches(), answer);
    const { choices } = await openai.chat.completions.create(body);
    const expected = [
      { url: "https://bonn.example/facts", title: "Bonn" },
      { url: "https://rhine.example/a_(b)/", title: "Rhine" },
    ].map((page, i) => ({
      type: "url_citation",
      url_citation: { start_index: places[i]?.[0], end_index: places[i]?.[1], ...page },
    }));
    assert.deepEqual(choices[0]?.message.annotations, expected);
    rig.script({ ...(searches() as object), text: "I look. " } as Turn, answer);
    const streamed: any[] = [];
    let text = "";
    for await (const chunk of await openai.chat.completions.create({ ...body, stream: true })) {
      const delta = chunk.choices?.[0]?.delta as any;
      text += delta?.content ?? "";
      streamed.push(...(delta?.annotations ?? []));
    }
    assert.equal(text, `I look. ${answer}`);
    assert.deepEqual(
      streamed.map(({ url_citation: { start_index, end_index } }) => text.slice(start_index, end_index)),
      [link, bare],
    );
  });

  it("gives the options to the web, and the descriptions to the model", async () => {
    rig.script(searches(), "ok");
    await openai.chat.completions.create({
      ...body,
      web_search_options: {
        search_context_size: "high",
        user_location: { type: "approximate", approximate: { city: "Bonn", country: "DE" } },
        filters: { allowed_domains: ["bonn.example"], blocked_domains: ["x.example"] },
        search_description: "Looks things up",
        external_web_access: true,
      } as never,
    });
    assert.deepEqual(web.asked[0]?.options, {
      contextSize: "high",
      location: { city: "Bonn", country: "DE", region: null, timezone: null },
      allowedDomains: ["bonn.example"],
      blockedDomains: ["x.example"],
    });
    assert.equal(offered()[0]?.description, "Looks things up");
  });

  it("is also offered by enable_search, and refuses domains that are none", async () => {
    rig.script("ok");
    await checked(await post(`${rig.url}/v1/chat/completions`, { messages: [hi], enable_search: true }));
    assert.equal(offered().length, 2);
    const filters = { allowed_domains: ["https://a.example/b"] };
    const response = await post(`${rig.url}/v1/chat/completions`, { ...body, web_search_options: { filters } });
    const { error } = (await response.json()) as any;
    assert.deepEqual([response.status, error.param], [400, "web_search_options.filters.allowed_domains[0]"]);
  });
});

describe("web search in responses", () => {
  const tools = [{ type: "web_search" as const, search_context_size: "low" as const }];

  it("has items and annotations that the official client reads from a stream as from a body", async () => {
    const body = {
      model: "tiny",
      input: "How many?",
      tools,
      include: ["web_search_call.action.sources" as const],
    };
    rig.script(searches(), reads(), answer);
    const whole = await openai.responses.create(body);
    rig.script(searches(), reads(), answer);
    const stream = openai.responses.stream(body);
    const types: string[] = [];
    for await (const { type } of stream) types.push(type);
    const streamed = await stream.finalResponse();
    for (const { output } of [whole, streamed]) {
      const [search, page, message] = output as any[];
      assert.deepEqual(search.action, {
        type: "search",
        query: "people of Bonn",
        queries: ["people of Bonn"],
        sources: pages.map(({ url }) => ({ type: "url", url })),
      });
      assert.match(search.id, /^ws_/);
      assert.deepEqual(page.action, { type: "open_page", url: "https://bonn.example/facts" });
      assert.deepEqual([search.status, page.status], ["completed", "completed"]);
      assert.deepEqual(
        message.content[0].annotations.map(({ type, start_index, end_index }: any) => [type, start_index, end_index]),
        places.map((place) => ["url_citation", ...place]),
      );
    }
    assert.deepEqual(
      types.filter((type) => type.startsWith("response.web_search_call") || type.includes("annotation")),
      [
        ...Array.from({ length: 2 }, () => ["in_progress", "searching", "completed"])
          .flat()
          .map((state) => `response.web_search_call.${state}`),
        "response.output_text.annotation.added",
        "response.output_text.annotation.added",
      ],
    );
    assert.equal(web.asked[0]?.options.contextSize, "low");
  });

  it("continues from the items without a session, with the prompt of the run", async () => {
    rig.script({ ...(searches() as object), text: "I look. " } as Turn, reads(), answer);
    const first = await openai.responses.create({ model: "tiny", input: [hi], tools, store: false });
    const before = shape(rig.seen().at(-1));
    await fetch(`${rig.url}/v1/sessions/${(first as any).session_id}`, { method: "DELETE" });
    rig.script("again");
    const input = [hi, ...first.output, { role: "user", content: "And now?" }];
    await openai.responses.create({ model: "tiny", input: input as never, tools, store: false });
    assert.deepEqual(shape(rig.seen()[0]), [...before, ["assistant", answer, []], ["user", "And now?", []]]);
  });

  it("can be forced by the tool choice", async () => {
    rig.script(searches(), "ok");
    await openai.responses.create({ model: "tiny", input: "x", tools, tool_choice: { type: "web_search" } as never });
    assert.deepEqual(
      offered().map(({ name }) => name),
      ["service_search_the_web"],
    );
  });
});

describe("web search in messages", () => {
  const search = { type: "web_search_20250305" as const, name: "web_search" as const };
  const fetchTool = { type: "web_fetch_20250910", name: "web_fetch" };
  const body = { model: "tiny", max_tokens: 100, messages: [hi] };

  it("has blocks, citations and usage that the official client reads from a stream as from a body", async () => {
    const asked = { ...body, tools: [search, fetchTool] as never };
    rig.script(searches(), reads(), answer);
    const whole = await anthropic.messages.create(asked);
    rig.script(searches(), reads(), answer);
    const streamed = await anthropic.messages.stream(asked).finalMessage();
    for (const { content, usage } of [whole, streamed]) {
      const [use, found, , page, text] = content as any[];
      assert.deepEqual([use.type, use.name, use.input], ["server_tool_use", "web_search", { query: "people of Bonn" }]);
      assert.equal(found.tool_use_id, use.id);
      assert.deepEqual(
        found.content.map(({ type, url, page_age }: any) => [type, url, page_age]),
        pages.map(({ url }) => ["web_search_result", url, null]),
      );
      assert.equal(page.content.content.source.data, "Text of the page.");
      assert.deepEqual(
        text.citations.map(({ type, url, cited_text }: any) => [type, url, cited_text]),
        pages.map(({ url, description }) => ["web_search_result_location", url, description]),
      );
      assert.deepEqual(usage.server_tool_use, { web_search_requests: 1, web_fetch_requests: 1 });
    }
  });

  it("offers only the tools that the request names, and their domains", async () => {
    rig.script(searches(), "ok");
    const only = { ...search, allowed_domains: ["a.example"], user_location: { type: "approximate", city: "Bonn" } };
    await anthropic.messages.create({ ...body, tools: [only] as never });
    assert.equal(offered().length, 1);
    assert.deepEqual(web.asked[0]?.options.allowedDomains, ["a.example"]);
    assert.equal(web.asked[0]?.options.location?.city, "Bonn");
    const response = await post(`${rig.url}/v1/messages`, { ...body, tools: [only, fetchTool] });
    assert.match(((await response.json()) as any).error.message, /same allowed_domains/);
  });

  it("runs a tool no more often than max_uses, and says so in the block", async () => {
    const again = { calls: [...(searches("a") as any).calls, ...(searches("b") as any).calls] };
    rig.script(searches(), again, "enough");
    const message = await anthropic.messages.create({ ...body, tools: [{ ...search, max_uses: 2 }] });
    assert.equal(web.asked.length, 2);
    assert.match(rig.seen().at(-1)?.at(-1)?.content ?? "", /not run: the limit of uses.*max_uses 2/);
    const last = message.content.findLast(({ type }) => type === "web_search_tool_result") as any;
    assert.deepEqual(last.content, { type: "web_search_tool_result_error", error_code: "max_uses_exceeded" });
    assert.equal(message.stop_reason, "end_turn");
  });

  it("reports failures of the web as blocks with the protocol's codes", async () => {
    const codes = [
      ["queue_full", "too_many_requests", "too_many_requests"],
      ["peer_gone", "unavailable", "url_not_accessible"],
      ["invalid_value", "invalid_tool_input", "url_not_allowed"],
    ] as const;
    for (const [code, ofSearch, ofFetch] of codes) {
      web.failure = new ServerError(code, "it failed");
      rig.script({ calls: [...(searches() as any).calls, ...(reads() as any).calls] }, "sorry");
      const { content } = await anthropic.messages.create({ ...body, tools: [search, fetchTool] as never });
      const errors = (content as any[]).filter(({ type }) => type.endsWith("_tool_result"));
      assert.deepEqual(
        errors.map((block) => block.content.error_code),
        [ofSearch, ofFetch],
      );
    }
  });

  for (const isLong of [false, true]) {
    it(`continues from the blocks of ${isLong ? "a long" : "a short"} request without a session`, async () => {
      const tools = [search, fetchTool] as never;
      const asked = isLong ? { ...hi, content: "x".repeat(100_000) } : hi;
      const both = { text: "I look.", calls: [...(searches() as any).calls, ...(reads() as any).calls] };
      rig.script(both, searches("b"), answer);
      const first = await anthropic.messages.create({ ...body, messages: [asked], tools });
      const before = shape(rig.seen().at(-1));
      await fetch(`${rig.url}/v1/sessions/${(first as any).session_id}`, { method: "DELETE" });
      rig.script("again");
      const messages = [asked, { role: "assistant", content: first.content }, { role: "user", content: "And now?" }];
      await anthropic.messages.create({ ...body, messages: messages as never, tools });
      assert.deepEqual(shape(rig.seen()[0]), [...before, ["assistant", answer, []], ["user", "And now?", []]]);
    });
  }

  it("continues a run that reached its limit of rounds", async () => {
    rig.script(searches(), searches("b"));
    const paused = await anthropic.messages.create({ ...body, tools: [search], max_tool_rounds: 1 } as never);
    assert.equal((paused as any).stop_reason, "pause_turn");
    rig.script("done");
    const messages = [hi, { role: "assistant", content: (paused as any).content }];
    const last = await anthropic.messages.create({ ...body, messages: messages as never, tools: [search] });
    assert.deepEqual((last.content as any[]).at(-1).text, "done");
    assert.match(rig.seen()[0]?.at(-1)?.content ?? "", /330 000/);
  });
});

describe("web search on a server without it", () => {
  it("is refused with the setting that enables it", async () => {
    const without = await startAgents({ settings: { groups: [] } });
    try {
      const bodies: readonly (readonly [path: string, body: object, param: string | null])[] = [
        ["/v1/chat/completions", { messages: [hi], web_search_options: {} }, "web_search_options"],
        ["/v1/chat/completions", { messages: [hi], enable_search: true }, "enable_search"],
        ["/v1/responses", { input: "x", tools: [{ type: "web_search_preview" }] }, "tools"],
        [
          "/v1/messages",
          { max_tokens: 9, messages: [hi], tools: [{ type: "web_fetch_20260318", name: "web_fetch" }] },
          null,
        ],
      ];
      for (const [path, body, param] of bodies) {
        const response = await post(without.url + path, body);
        const { error } = (await response.json()) as any;
        assert.equal(response.status, 400, path);
        assert.match(error.message, /enable_search/);
        if (param !== null) assert.equal(error.param, param);
      }
    } finally {
      await without.stop();
    }
  });
});
