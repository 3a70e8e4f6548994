// biome-ignore-all lint/suspicious/noExplicitAny: the bodies of three protocols are read field by field
// Files of agent runs over HTTP: files that a client sends, and files that tools create.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import OpenAI, { toFile } from "openai";
import { chat, checked, commands, post, python, question, runs } from "./clients.ts";
import { endlessPdf, pdfOf } from "./pdf.ts";
import { type AgentRig, startAgents } from "./rig.ts";

let rig: AgentRig;
before(async () => {
  rig = await startAgents();
});
after(async () => {
  await rig.stop();
});

describe("files of an agent run", () => {
  afterEach(() => rig.script());

  it("are sent as parts of a chat message, by id or content, and are in the work folder and the prompt", async () => {
    const client = new OpenAI({ baseURL: `${rig.url}/v1`, apiKey: "none" });
    const uploaded = await client.files.create({
      file: await toFile(Buffer.from("x,y\n1,2\n"), "up.csv"),
      purpose: "user_data",
    });
    rig.script(runs("sorted(open(n).read() for n in ('up.csv', 'in.txt'))"), "read");
    const content = [
      { type: "text", text: "Read these." },
      { type: "file", file: { file_id: uploaded.id } },
      {
        type: "file",
        file: { filename: "in.txt", file_data: `data:text/plain;base64,${Buffer.from("inline").toString("base64")}` },
      },
    ];
    const answer = await chat.ask(rig.url, { messages: [{ role: "user", content }] });
    assert.match(answer.ran[0]?.result ?? "", /inline.*x,y/);
    const prompt = rig.seen()[0]![0]!.content;
    assert.match(prompt, /^Read these\.\n\n\[File "up\.csv", id file-\w+, text\/csv, 8 bytes\]\nx,y\n1,2\n/);
    assert.match(prompt, /\[File "in\.txt", id file-\w+, text\/plain, 6 bytes\]\ninline/);
    assert.doesNotMatch(prompt, /base64/);
  });

  it("are stored again if the content of an earlier request was removed to make room", async () => {
    const part = { type: "file", file: { filename: "again.txt", file_data: Buffer.from("again").toString("base64") } };
    const ask = () => chat.ask(rig.url, { messages: [{ role: "user", content: [part] }] });
    rig.script("one", "two");
    await ask();
    const id = /id (file-\w+)/.exec(rig.seen()[0]![0]!.content)?.[1] ?? "";
    const found = await rig.state.files.content(id);
    assert.equal(found?.kind, "content");
    rmSync(found!.kind === "content" ? found.path : "");
    await ask();
    assert.equal(rig.seen()[1]![0]!.content, rig.seen()[0]![0]!.content);
    assert.equal((await rig.state.files.content(id))?.kind, "content");
  });

  it("are sent as parts of a response's input, and as documents of a message", async () => {
    rig.script("one", "two");
    const part = { type: "input_file", filename: "a.txt", file_data: Buffer.from("aaa").toString("base64") };
    const body = await checked(
      await post(`${rig.url}/v1/responses`, {
        input: [{ role: "user", content: [{ type: "input_text", text: "hi" }, part] }],
      }),
    );
    assert.match(body.session_id, /^sess_/);
    assert.match(rig.seen()[0]![0]!.content, /\[File "a\.txt".*\]\naaa/);
    const document = { type: "document", title: "b.txt", source: { type: "text", data: "bbb" } };
    await checked(
      await post(`${rig.url}/v1/messages`, {
        max_tokens: 10,
        messages: [{ role: "user", content: [document, { type: "text", text: "hi" }] }],
      }),
    );
    assert.match(rig.seen()[1]![0]!.content, /^hi\n\n\[File "b\.txt".*\]\nbbb/);
  });

  it("are rejected with a specific error if they are unknown, or point into this machine", async () => {
    const refusal = async (path: string, body: object) => {
      const reply = await post(`${rig.url}${path}`, body);
      return [reply.status, ((await reply.json()) as { error: { message: string } }).error.message] as const;
    };
    const unknown = await refusal("/v1/chat/completions", {
      messages: [{ role: "user", content: [{ type: "file", file: { file_id: "file-none" } }] }],
    });
    assert.equal(unknown[0], 400);
    assert.match(unknown[1], /file-none/);
    const local = await refusal("/v1/responses", {
      input: [{ role: "user", content: [{ type: "input_file", file_url: `${rig.url}/v1/files` }] }],
    });
    assert.equal(local[0], 400);
    assert.match(local[1], /not public/);
    const bad = await refusal("/v1/chat/completions", {
      messages: [{ role: "user", content: [{ type: "file", file: { filename: "../x", file_data: "YQ==" } }] }],
    });
    assert.match(bad[1], /file name/);
  });

  it("are cited by the text of a response, listed by container, and downloaded as they are", async () => {
    rig.script(runs("open('chart.bin', 'wb').write(bytes(range(256)) * 8)"), "see chart");
    const body = await checked(
      await post(`${rig.url}/v1/responses`, {
        input: "draw",
        tools: [{ type: "code_interpreter", container: { type: "auto" } }],
      }),
    );
    const message = body.output.find((item: any) => item.type === "message");
    const [citation] = message.content[0].annotations;
    assert.deepEqual(
      [citation.type, citation.filename, citation.container_id],
      ["container_file_citation", "chart.bin", `cntr_${body.session_id}`],
    );
    const list = await checked(await fetch(`${rig.url}/v1/containers/${citation.container_id}/files`));
    assert.deepEqual(
      list.data.map((file: any) => file.id),
      [citation.file_id],
    );
    const content = await fetch(`${rig.url}/v1/containers/${citation.container_id}/files/${citation.file_id}/content`);
    assert.deepEqual(
      Buffer.from(await content.arrayBuffer()),
      Buffer.from(Array.from({ length: 2048 }, (_, i) => i % 256)),
    );
    for (const path of ["", "/content"]) {
      const elsewhere = await fetch(`${rig.url}/v1/containers/cntr_sess_other/files/${citation.file_id}${path}`);
      assert.equal(elsewhere.status, 404, "another container does not have the file");
    }
    const stored = await rig.state.files.find(citation.file_id);
    assert.equal(stored?.purpose, "agent_output");
  });

  it("are stored in time, and documents of other clients are read, while a client sends documents that keep readers busy", async () => {
    const add = async (client: string, content: Buffer) => {
      const staged = `document-${randomUUID()}`;
      writeFileSync(join(rig.state.files.stagingFolder, staged), content);
      const source = { tool: "user_upload", round: 0, turn: 0 };
      const file = { id: null, name: "a.pdf", format: null, purpose: "user_data", source, session: null } as const;
      return await rig.state.files.add({ ...file, client, staged, failure: null });
    };
    const startedAt = performance.now();
    const busy = Promise.all(Array.from({ length: 7 }, () => add("busy", endlessPdf())));
    const { preview } = await add("other", pdfOf("BT /F 12 Tf (Hello you) Tj ET", 1));
    assert.equal(preview, "Hello you");
    assert.deepEqual(
      (await busy).map((file) => file.preview),
      Array.from({ length: 7 }, () => null),
    );
    assert.ok(performance.now() - startedAt < 12_000, `${performance.now() - startedAt} ms`);
  });

  it("that were not produced answer 422", async () => {
    rig.script({ calls: [[python, { code: "1", outputs: [{ name: "none.txt" }] }]] }, "sorry");
    const body = await chat.ask(rig.url, { messages: [question] });
    const [file] = (body.raw as { files: { id: string; code: string }[] }).files;
    assert.equal(file?.code, "not_produced");
    assert.equal((await fetch(`${rig.url}/v1/files/${file?.id}/content`)).status, 422);
  });

  it("are read by the model with read_file and list_files", async () => {
    rig.script(commands("seq 1 1000 > long.txt"), { calls: [["service_list_files", {}]] }, "listed");
    const { ran } = await chat.ask(rig.url, { messages: [question] });
    const id = /"id":"(file_\w+)"/.exec(ran[1]?.result ?? "")?.[1];
    rig.script(
      {
        calls: [
          ["service_read_file", { file_id: id, start: 0, end: 8 }],
          ["service_read_file", { file_id: "x" }],
        ],
      },
      "read",
    );
    const second = await chat.ask(rig.url, { messages: [question] });
    assert.match(second.ran[0]?.result ?? "", /"content":"1\\n2\\n3\\n4\\n"/);
    assert.match(second.ran[1]?.result ?? "", /no file has the id/);
  });
});
