// Web tools in agent runs over HTTP: the model searches and reads pages with the real web thread. Only the model is scripted.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { startWebRig, type WebRig } from "../../../fixtures/actors/web-rig.ts";
import { type AgentRig, startAgents } from "../rig.ts";

interface ChatAnswer {
  readonly choices: readonly { readonly message: { readonly content: string } }[];
  readonly agentic_tool_calls: readonly { readonly name: string; readonly result_content: string }[];
}

describe("a run with web tools", () => {
  let web: WebRig;
  let agents: AgentRig;
  before(async () => {
    web = await startWebRig();
    const results = [{ title: "Tides", url: web.at("tide.test", "/"), content: "About tides" }];
    web.answers.set("/search", { type: "application/json", body: JSON.stringify({ results }) });
    web.answers.set("tide.test/", { body: "<html><body><main><p>High tide is at noon.</p></main></body></html>" });
    agents = await startAgents({ web: web.client, settings: { groups: ["web_search"] } });
  });
  after(async () => {
    await agents.stop();
    await web.stop();
  });

  async function chat(body: object): Promise<Response> {
    return await fetch(`${agents.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        model: "default",
        messages: [{ role: "user", content: "When is high tide?" }],
        max_tool_rounds: 4,
        ...body,
      }),
    });
  }

  it("gives the model what was found, and the client the sources", async () => {
    agents.script({ calls: [["service_search_the_web", { query: "high tide" }]] }, "At noon.");
    const answer = (await (await chat({})).json()) as ChatAnswer;
    assert.equal(answer.choices[0]?.message.content, "At noon.");
    const found = {
      title: "Tides",
      url: web.at("tide.test", "/"),
      description: "About tides",
      content: "High tide is at noon.",
    };
    const expected = { sources: [{ title: "Tides", url: found.url }], output: [found] };
    assert.deepEqual(JSON.parse(answer.agentic_tool_calls[0]?.result_content ?? ""), expected);
    assert.deepEqual(JSON.parse(String(agents.seen().at(-1)?.at(-1)?.content)), expected);
  });

  it("reports the query, the number of results and the sources as progress", async () => {
    agents.script({ calls: [["service_search_the_web", { query: "high tide" }]] }, "At noon.");
    const text = await (await chat({ stream: true })).text();
    const events = [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json]) => JSON.parse(json ?? "{}"));
    const progress = events.filter(({ type }) => type === "agentic_tool_call_progress");
    assert.deepEqual(
      progress.map(({ phase, data }) => [phase, data.tool_type]),
      [
        ["calling", "web_search"],
        ["complete", "web_search"],
      ],
    );
    const { query, results_count: count, sources } = progress[1].data;
    assert.deepEqual([query, count, sources], ["high tide", 1, [{ title: "Tides", url: web.at("tide.test", "/") }]]);
  });

  it("reads a page, and tells the model why a page cannot be read", async () => {
    const call = (url: string) => ["service_website_content_extractor", { url }] as const;
    agents.script(
      { calls: [call(web.at("tide.test", "/")), call(web.at("inner.test", "/")), call("file:///etc/passwd")] },
      "ok",
    );
    const answer = (await (await chat({})).json()) as ChatAnswer;
    const [page, inner, file] = answer.agentic_tool_calls.map((made) => JSON.parse(made.result_content));
    assert.deepEqual(page, {
      url: web.at("tide.test", "/"),
      title: `tide.test:${web.port}`,
      content: "High tide is at noon.",
    });
    assert.deepEqual([inner.status, file.status], ["error", "error"]);
    assert.match(inner.error, /is not public/);
    assert.match(file.error, /expected a URL of http or https/);
  });
});
