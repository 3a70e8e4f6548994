// Operations on stored responses: they are streamed, generated in the background, followed, cancelled, continued by another
// response, and deleted, each on any replica.
import { setTimeout as sleep } from "node:timers/promises";
import type { Dice } from "../../../test/fixtures/hostile/dice.ts";
import { answered, Call } from "../client.ts";
import type { KnownResponse } from "../ledger.ts";
import type { ChaosServer } from "../rig/server.ts";
import { stuckIsBroken } from "./chats.ts";
import type { Work } from "./operation.ts";
import { isBeginning, maxTokens, prompts } from "./texts.ts";

const path = "/v1/responses";

interface Asked {
  readonly prompt: string;
  readonly tokens: number;
  readonly body: Record<string, unknown>;
}

function ask(dice: Dice, fields: object): Asked {
  const prompt = dice.pick(prompts);
  const tokens = dice.int(1, maxTokens);
  const body = { model: "tiny", input: prompt, max_output_tokens: tokens, temperature: 0, ignore_eos: true, ...fields };
  return { prompt, tokens, body };
}

/** Creates a stored response and streams it or waits for it. */
export async function responseWaiting(work: Work): Promise<void> {
  const { server, dice, ledger } = work;
  const isStream = dice.chance(0.75);
  const { prompt, tokens, body } = ask(dice, { stream: isStream });
  const leavesAfter = dice.chance(0.2) ? dice.int(0, 300) : null;
  const call = new Call(server.url + path, { body });
  const known = isStream ? knowFrom(work, call, prompt, tokens, false) : null;
  if (leavesAfter !== null && isStream) void sleep(leavesAfter).then(() => call.leave());
  const ending = await work.ended(call);
  const isGood = await ledger.judge(work.what, call, server, ending);
  const response = await known;
  if (response) judgeStream(work, call, response, 0, ending);
  if (!isGood || isStream) return;
  const answer = call.json as unknown as Resource;
  const stored = ledger.know({
    id: answer.id,
    what: work.what,
    server,
    isBackground: false,
    hasEvents: false,
    tokens,
    reference: work.references.text("tiny", prompt, maxTokens),
  });
  stored.seenEnd = answer.status;
  judgeText(work, answer, stored);
}

/** Creates a background response. While it runs, random replicas stream, cancel or delete it. */
export async function background(work: Work): Promise<void> {
  const { server, dice, ledger, others } = work;
  const { prompt, tokens, body } = ask(dice, { stream: true, background: true });
  const creator = new Call(server.url + path, { body });
  const plans = {
    followers: dice.times(dice.int(0, 2), () => ({ on: others(), afterMs: dice.int(0, 600), from: dice.int(-1, 6) })),
    cancel: dice.chance(0.25) ? { on: others(), afterMs: dice.int(0, 800) } : null,
    remove: dice.chance(0.12) ? { on: others(), afterMs: dice.int(0, 1000) } : null,
    reread: others(),
    leavesAfter: dice.chance(0.2) ? dice.int(0, 500) : null,
  };
  const known = await knowFrom(work, creator, prompt, tokens, true);
  const rest: Promise<void>[] = [];
  if (known !== null) {
    if (plans.leavesAfter !== null) void sleep(plans.leavesAfter).then(() => creator.leave());
    rest.push(readsBack(work, known, plans.reread));
    for (const plan of plans.followers) rest.push(follow(work, known, plan));
    if (plans.cancel) rest.push(cancel(work, known, plans.cancel));
    if (plans.remove) rest.push(remove(work, known, plans.remove));
  }
  const ending = await work.ended(creator);
  await ledger.judge(work.what, creator, server, ending);
  if (known !== null) judgeStream(work, creator, known, 0, ending);
  await Promise.all(rest);
}

/** Runs a conversation of two turns. A random replica gets the second turn. */
export async function conversation(work: Work): Promise<void> {
  const { server, dice, ledger, others, limitMs } = work;
  const first = ask(dice, { stream: false });
  const second = others();
  const call = await answered(server.url + path, { body: first.body }, limitMs);
  if (!(await ledger.judge(work.what, call, server, await stuckIsBroken(call, work.what, ledger)))) return;
  const { id, status } = call.json as unknown as Resource;
  const know = { what: work.what, isBackground: false, hasEvents: false };
  const reference = work.references.text("tiny", first.prompt, maxTokens);
  ledger.know({ ...know, id, server, tokens: first.tokens, reference }).seenEnd = status;
  const next = await answered(
    second.url + path,
    { body: { ...ask(dice, {}).body, previous_response_id: id } },
    limitMs,
  );
  const ending = await stuckIsBroken(next, `${work.what}, turn 2`, ledger);
  const lost = ledger.mayLoseOf(server) ? ["previous_response_not_found"] : [];
  if (!(await ledger.judge(`${work.what}, turn 2`, next, second, ending, lost))) return;
  const answer = next.json as unknown as Resource;
  ledger.know({
    ...know,
    id: answer.id,
    server: second,
    tokens: answer.usage?.output_tokens ?? 0,
    reference: null,
  }).seenEnd = answer.status;
  ledger.count("conversation");
}

/** Runs a response whose model calls the shell tool in the sandbox. */
export async function shellRun(work: Work): Promise<void> {
  const { server, dice, ledger, limitMs } = work;
  const leavesAfter = dice.chance(0.2) ? dice.int(0, 800) : null;
  const body = { model: "caller", input: "x", temperature: 0, tools: [{ type: "shell" }], stream: true };
  const call = new Call(server.url + path, { body });
  const known = knowFrom(work, call, "", 0, false);
  if (leavesAfter !== null) void sleep(leavesAfter).then(() => call.leave());
  const ending = await work.ended(call, limitMs);
  await ledger.judge(work.what, call, server, ending);
  const response = await known;
  if (response === null) return;
  if (judgeStream(work, call, response, 0, ending) !== "completed") return;
  const last = call.events.findLast(({ data }) => data.response !== undefined)?.data.response as {
    output: { type: string; output?: { stdout?: string }[] }[];
  };
  const shown = last.output.find(({ type }) => type === "shell_call_output")?.output?.[0]?.stdout;
  if (shown === "chaos\n") ledger.count("shell");
  else if (shown === undefined || !ledger.explains("peer_gone"))
    ledger.broken(
      `${work.what}: the shell printed ${JSON.stringify(shown)}: ${JSON.stringify(last.output).slice(0, 300)}`,
    );
}

export interface Resource {
  readonly id: string;
  readonly status: string;
  readonly output_text: string;
  readonly incomplete_details: { readonly reason: string } | null;
  readonly usage: { readonly output_tokens: number } | null;
}

/** Returns the response object in the first stream event that contains one. */
function resourceIn(call: Call): Resource | undefined {
  return call.events.find(({ data }) => data.response !== undefined)?.data.response as Resource | undefined;
}

async function knowFrom(
  work: Work,
  call: Call,
  prompt: string,
  tokens: number,
  isBackground: boolean,
): Promise<KnownResponse | null> {
  if (!(await call.has(({ data }) => data.response !== undefined))) return null;
  const { id } = resourceIn(call) as Resource;
  const { server, what, ledger, references } = work;
  const reference = prompt === "" ? null : references.text("tiny", prompt, maxTokens);
  return ledger.know({ id, what, server, isBackground, hasEvents: isBackground, tokens, reference });
}

function judgeStream(
  work: Work,
  call: Call,
  known: KnownResponse,
  from: number,
  ending: Awaited<Call["ended"]>,
): string | null {
  const status = work.ledger.judgeEvents(work.what, call, known, from, ending);
  const last = call.events.findLast(({ data }) => data.response !== undefined)?.data.response as Resource | undefined;
  if (status !== null && last !== undefined) {
    judgeText(work, last, known);
    work.ledger.count(`response ${status}`);
  }
  return status;
}

/** Compares the text of a response with the reference text, and its usage with the requested number of tokens. */
export function judgeText(
  { ledger }: Pick<Work, "ledger">,
  answer: Resource,
  { what, reference, tokens }: Pick<KnownResponse, "what" | "reference" | "tokens">,
): void {
  if (reference === null) return;
  if (!isBeginning(answer.output_text, reference))
    ledger.broken(`${what}: the text of ${answer.id} is not the reference`);
  const isFull = answer.incomplete_details?.reason === "max_output_tokens";
  if (isFull && answer.usage?.output_tokens !== tokens) {
    ledger.broken(`${what}: ${answer.id} has ${tokens} tokens and a usage of ${answer.usage?.output_tokens}`);
  }
}

async function readsBack({ ledger, what, limitMs }: Work, { id }: KnownResponse, on: ChaosServer): Promise<void> {
  const call = await answered(`${on.url}${path}/${id}`, {}, limitMs);
  const ending = await stuckIsBroken(call, `${what}, read back`, ledger);
  await ledger.judge(`${what}, read back`, call, on, ending, absent(ledger, id));
}

async function follow(
  work: Work,
  known: KnownResponse,
  plan: { on: ChaosServer; afterMs: number; from: number },
): Promise<void> {
  await sleep(plan.afterMs);
  const query = plan.from < 0 ? "" : `&starting_after=${plan.from}`;
  const call = new Call(`${plan.on.url}${path}/${known.id}?stream=true${query}`);
  const ending = await work.ended(call);
  const what = `${work.what}, follower`;
  // If the server that generated the response has failed, the events of the response are not stored.
  const failed = work.ledger.wasDown(known.server) || work.ledger.explains("peer_gone") ? ["not_found"] : [];
  await work.ledger.judge(what, call, plan.on, ending, [...absent(work.ledger, known.id), ...failed]);
  if (call.status === 200) work.ledger.judgeEvents(what, call, known, plan.from + 1, ending);
  work.ledger.count("followed");
}

async function cancel(
  { ledger, what, limitMs }: Work,
  { id }: KnownResponse,
  plan: { on: ChaosServer; afterMs: number },
): Promise<void> {
  await sleep(plan.afterMs);
  const call = await answered(`${plan.on.url}${path}/${id}/cancel`, { method: "POST" }, limitMs);
  const ending = await stuckIsBroken(call, `${what}, cancel`, ledger);
  // The server responds `not_found` to the cancellation of a response that has already ended.
  if (!(await ledger.judge(`${what}, cancel`, call, plan.on, ending, ["not_found"]))) return;
  const { status } = call.json as unknown as Resource;
  if (status !== "cancelled") ledger.broken(`${what}: a cancelled response is ${status}`);
  ledger.count("cancelled");
}

async function remove(
  { ledger, what, limitMs }: Work,
  known: KnownResponse,
  plan: { on: ChaosServer; afterMs: number },
): Promise<void> {
  await sleep(plan.afterMs);
  known.deletion = "asked";
  const call = await answered(`${plan.on.url}${path}/${known.id}`, { method: "DELETE" }, limitMs);
  const ending = await stuckIsBroken(call, `${what}, delete`, ledger);
  if (await ledger.judge(`${what}, delete`, call, plan.on, ending, absent(ledger, known.id))) known.deletion = "done";
}

/** Returns the accepted error codes: `not_found` if the response may have been deleted or lost by a fault. */
function absent(ledger: Work["ledger"], id: string): string[] {
  const known = ledger.responses.get(id);
  return known === undefined || known.deletion !== "none" || ledger.mayLoseOf(known.server) ? ["not_found"] : [];
}
