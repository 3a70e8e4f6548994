// Agent runs with skills: a scripted model, real tools in the sandbox, and the real stores of the state thread.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import OpenAI, { toFile } from "openai";
import { executable, skillText, zip } from "../../../fixtures/skills/zip-builder.ts";
import { type Answer, chat, commands, messages, post, python, question, responses, runs, shell } from "../clients.ts";
import { type AgentRig, type RigOptions, startAgents } from "../rig.ts";

interface Named {
  readonly id: string;
  /** Version of the skill; null = the latest. */
  readonly version: number | null;
}

/** Skills that the next requests attach. */
let used: Named[] = [];

/** Returns the request fields that attach these skills in the given protocol. */
function skillFields(protocol: string): Record<string, unknown> {
  const references = used.map(({ id, version }) => ({ skill_id: id, version: version ?? "latest" }));
  if (protocol === "messages") {
    return { container: { skills: references.map((one) => ({ type: "custom", ...one })) } };
  }
  const skills = references.map((one) => ({ type: "skill_reference", ...one }));
  const shellTool = { type: "shell", environment: { type: "container_auto", skills } };
  return { tools: [{ type: "code_interpreter", container: { type: "auto" } }, shellTool] };
}

/** Uploads a skill with a script, and returns its id. */
async function upload(rig: AgentRig, name: string, version = "one", skill?: string): Promise<string> {
  const archive = zip([
    {
      name: `${name}/SKILL.md`,
      content: skillText(name, `Says ${version}.`, `Run scripts/say.sh. Secret of ${name}.`),
    },
    { name: `${name}/scripts/say.sh`, content: `#!/bin/sh\necho "${name} says ${version} $1"\n`, mode: executable },
  ]);
  const client = new OpenAI({ baseURL: `${rig.url}/v1`, apiKey: "none" });
  const files = await toFile(Buffer.from(archive), `${name}.zip`);
  if (skill === undefined) return (await client.skills.create({ files })).id;
  return (await client.skills.versions.create(skill, { files })).id;
}

const askIn = async (rig: AgentRig, session?: string): Promise<Answer> => {
  const more = { ...skillFields("chat"), ...(session === undefined ? {} : { session_id: session }) };
  return await chat.ask(rig.url, { messages: [question], more });
};

const resultsOf = ({ ran }: Answer): string => ran.map(({ result }) => result).join("\n");

describe("a run with skills", () => {
  let rig: AgentRig;
  before(async () => {
    rig = await startAgents();
  });
  after(() => rig.stop());
  beforeEach(() => {
    used = [];
  });

  const ask = async (session?: string): Promise<Answer> => await askIn(rig, session);

  for (const protocol of [chat, responses, messages]) {
    it(`tells the model names and paths only; the shell reads skills and runs scripts, over ${protocol.name}`, async () => {
      used = [{ id: await upload(rig, "greeter"), version: null }];
      rig.script(commands("cat /skills/greeter/SKILL.md"), commands("/skills/greeter/scripts/say.sh hello"), "done");
      const answer = await protocol.ask(rig.url, { messages: [question], more: skillFields(protocol.name) });
      const [first = []] = rig.seen();
      const prompt = first.map(({ content }) => content).join("\n");
      assert.match(prompt, /- greeter: Says one\. \(\/skills\/greeter\/SKILL\.md\)/);
      assert.doesNotMatch(prompt, /Secret of greeter/);
      const results = JSON.stringify(rig.seen().at(-1));
      assert.match(results, /Secret of greeter/);
      assert.match(results, /greeter says one hello/);
      assert.equal(answer.text, "done");
    });
  }

  it("shows them to Python too, even if Python is already running", async () => {
    const session = "skills-python";
    rig.script(runs("kept = 'still here'"), "ok");
    await ask(session);
    used = [{ id: await upload(rig, "reader"), version: null }];
    rig.script(runs("print(open('/skills/reader/SKILL.md').read(), kept)"), "ok");
    const result = resultsOf(await ask(session));
    assert.match(result, /Secret of reader/);
    assert.match(result, /still here/);
  });

  it("lets no tool write to them", async () => {
    used = [{ id: await upload(rig, "fixed"), version: null }];
    const attempts = [
      "echo x > /skills/fixed/SKILL.md",
      "echo x > /skills/fixed/new",
      "rm -rf /skills/fixed",
      "chmod u+w /skills/fixed/SKILL.md",
      "mv /skills/fixed /skills/other",
      "ln -s /etc /skills/link",
    ];
    const code = `import os
for act in (lambda: open('/skills/fixed/SKILL.md', 'a'), lambda: os.mkdir('/skills/x'), lambda: os.remove('/skills/fixed/SKILL.md')):
    try:
        act()
        print('WRITTEN')
    except OSError as error:
        print(error.errno)`;
    const calls = [
      [shell, { commands: attempts.map((attempt) => `(${attempt}) && echo WRITTEN`) }],
      [python, { code }],
    ] as const;
    rig.script({ calls }, commands("cat /skills/fixed/SKILL.md", "ls -A /skills"), "ok");
    const { ran } = await ask();
    const results = ran.slice(0, 2).map(({ result }) => result);
    assert.equal(results.length, 2);
    assert.doesNotMatch(results.join(), /WRITTEN/);
    assert.match(results.join(), /Read-only file system/);
    assert.match(ran[2]?.result ?? "", /Secret of fixed/);
    assert.match(ran[2]?.result ?? "", /fixed\.\\nfixed\\n"/);
  });

  it("hides them from other sessions", async () => {
    used = [{ id: await upload(rig, "private"), version: null }];
    rig.script(commands("ls /skills"), "ok");
    assert.match(resultsOf(await ask("one-session")), /private/);
    used = [];
    rig.script(commands("ls -A /skills; find / -name 'say.sh' 2>/dev/null; ls /work/.."), "ok");
    assert.doesNotMatch(resultsOf(await ask("other-session")), /private|say\.sh/);
  });

  it("has the version that it names, and the latest otherwise", async () => {
    const id = await upload(rig, "counted", "one");
    await upload(rig, "counted", "two", id);
    const say = commands("/skills/counted/scripts/say.sh");
    used = [{ id, version: 1 }];
    rig.script(say, "ok");
    assert.match(resultsOf(await ask("versions")), /says one/);
    used = [{ id, version: null }];
    rig.script(say, "ok");
    assert.match(resultsOf(await ask("versions")), /says two/);
    used = [];
    rig.script(commands("ls -A /skills | wc -l"), "ok");
    assert.match(resultsOf(await ask("versions")), /"0\\n"/);
  });

  it("keeps using them if they are deleted while it runs", async () => {
    const id = await upload(rig, "deleted");
    used = [{ id, version: null }];
    rig.script(commands("sleep 0.3"), commands("/skills/deleted/scripts/say.sh"), "ok");
    const answering = ask();
    await new Promise((resolve) => setTimeout(resolve, 150));
    assert.equal((await fetch(`${rig.url}/v1/skills/${id}`, { method: "DELETE" })).status, 200);
    assert.match(resultsOf(await answering), /deleted says one/);
    const reply = await refused();
    assert.deepEqual([reply.status, reply.error.code, reply.error.param], [404, "skill_not_found", "skills"]);
  });

  const refused = async (body: object = {}) => {
    rig.script("never");
    const reply = await post(`${rig.url}/v1/chat/completions`, {
      messages: [question],
      ...skillFields("chat"),
      ...body,
    });
    const { error } = (await reply.json()) as { error: { code: string; param: string; message: string } };
    assert.deepEqual(rig.seen(), [], "the model is not asked");
    return { status: reply.status, error };
  };

  it("is refused for unknown skills and versions, too many, equal names, and without the shell", async () => {
    const id = await upload(rig, "same");
    for (const [references, status, message] of [
      [[{ id: "skill_0", version: null }], 404, /skill_0/],
      [[{ id: "../../../etc", version: null }], 404, /\.\./],
      [[{ id, version: 7 }], 404, /version 7/],
      [
        [
          { id, version: null },
          { id, version: 1 },
        ],
        400,
        /"same" twice/,
      ],
      [Array.from({ length: 33 }, () => ({ id, version: null })), 400, /at most 32 elements, got an array of 33/],
    ] as const) {
      used = [...references];
      const reply = await refused();
      assert.equal(reply.status, status, reply.error.message);
      assert.match(reply.error.param, /skills$/);
      assert.match(reply.error.message, message);
    }
    used = [{ id, version: null }];
    const withoutShell = await post(`${rig.url}/v1/messages`, {
      messages: [question],
      max_tokens: 9,
      tools: [{ type: "code_execution_20250522", name: "code_execution" }],
      ...skillFields("messages"),
    });
    const { error } = (await withoutShell.json()) as { error: { message: string } };
    assert.equal(withoutShell.status, 400);
    assert.match(error.message, /skills need the shell tool/);
  });
});

describe("skills of a server", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-skills-"));
  const stops: (() => Promise<void>)[] = [];
  after(() => rmSync(folder, { recursive: true, force: true }));
  afterEach(async () => {
    for (const stop of stops.splice(0)) await stop();
    used = [];
  });

  async function start(options: RigOptions): Promise<AgentRig> {
    const rig = await startAgents(options);
    stops.push(() => rig.stop());
    return rig;
  }

  it("survive a restart with their versions", async () => {
    const stateFolder = join(folder, "state");
    const first = await start({ stateFolder });
    const id = await upload(first, "durable", "one");
    await upload(first, "durable", "two", id);
    for (const stop of stops.splice(0)) await stop();
    const second = await start({ stateFolder });
    used = [{ id, version: 1 }];
    second.script(commands("/skills/durable/scripts/say.sh"), "ok");
    assert.match(resultsOf(await askIn(second)), /durable says one/);
    assert.equal(await upload(second, "durable", "three", id), `${id}_v3`);
    await fetch(`${second.url}/v1/skills/${id}`, { method: "DELETE" });
    assert.deepEqual(readdirSync(join(stateFolder, "skills", "content")), []);
    assert.deepEqual(readdirSync(join(stateFolder, "skills", "staging")), []);
  });

  it("of skills_dir are used as they are at the time of the request", async () => {
    const skillsFolder = join(folder, "own");
    mkdirSync(join(skillsFolder, "live"), { recursive: true });
    const write = (text: string) =>
      writeFileSync(join(skillsFolder, "live", "SKILL.md"), skillText("live", "Live.", text));
    write("first text");
    const rig = await start({ skillsFolder });
    const { data } = (await (await fetch(`${rig.url}/v1/skills`)).json()) as { data: readonly { id: string }[] };
    used = [{ id: data[0]?.id ?? "", version: null }];
    const read = async (): Promise<string> => {
      rig.script(commands("cat /skills/live/SKILL.md"), "ok");
      return resultsOf(await askIn(rig, "live"));
    };
    assert.match(await read(), /first text/);
    write("other text");
    assert.match(await read(), /other text/);
  });

  it("are copied to a folder of the session without isolation", async () => {
    const sandbox = {
      mode: "off",
      profile: "developer",
      network: "none",
      maxMemoryMb: 512,
      maxCpuSecs: 60,
      maxProcs: 64,
      maxDiskMb: 256,
    } as const;
    const rig = await start({ tools: { sandbox } });
    used = [{ id: await upload(rig, "open"), version: null }];
    rig.script(commands("true"), "ok");
    await askIn(rig, "open");
    const path =
      /\((\S+)\/SKILL\.md\)/.exec(
        rig
          .seen()[0]
          ?.map(({ content }) => content)
          .join() ?? "",
      )?.[1] ?? "";
    assert.match(path, /\/skills\/open$/);
    rig.script(commands(`${path}/scripts/say.sh`), "ok");
    const answer = await askIn(rig, "open");
    assert.match(resultsOf(answer), /open says one/);
  });
});
