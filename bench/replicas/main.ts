// `bench replicas`: runs three servers behind a proxy while one is killed, one is stopped and Redis is restarted, and reports the errors
// that clients saw. test/server/load-balancer/proxied.test.ts is a short version.
import arg from "arg";
import { table } from "../../cli/bench/report.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { ProxyName } from "../../test/fixtures/proxy/proxy.ts";
import { type ProxiedResult, runProxied } from "../../test/server/load-balancer/proxied.ts";
import { report } from "../results.ts";

export const usage = `npm run bench -- replicas [FLAGS]: three servers behind a proxy under faults

  --proxy nginx      nginx, haproxy or envoy (program: ENVOY)
  --model NAME       model of the servers; default: the default model of tests
  --streams 32       streams on each server
  --tokens 96        tokens of each stream
  --rounds 2         number of rounds; Redis is restarted after the other faults, or before them in every second round
  --save             write bench/results/replicas-PROXY.md
`;

const proxies: readonly ProxyName[] = ["nginx", "haproxy", "envoy"];

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--proxy": String,
      "--model": String,
      "--streams": Number,
      "--tokens": Number,
      "--rounds": Number,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const { "--streams": streams = 32, "--tokens": tokens = 96, "--rounds": rounds = 2 } = flags;
  const proxy = proxies.find((name) => name === (flags["--proxy"] ?? "nginx"));
  if (proxy === undefined)
    throw new ServerError("config_invalid", `expected ${proxies.join(", ")}`, { param: "proxy" });
  const { path: model } = await resolveModel(flags["--model"] ?? defaultPackage);
  const texts: string[] = [];
  for (let round = 0; round < rounds; round++) {
    const redis = round % 2 === 0 ? "after" : "before";
    const result = await runProxied({ proxy, model, streams, tokens, redis });
    texts.push(`round ${round + 1}, Redis is restarted ${redis} the other faults\n\n${shown(result)}`);
    console.error(texts.at(-1));
  }
  report(
    {
      name: `replicas-${proxy}`,
      title: `Three replicas behind ${proxy}`,
      method: `Real servers and model (${flags["--model"] ?? defaultPackage}), one Redis with appendfsync always, deploy/'s configuration of ${proxy}. ${streams} streams for each server, of which HAProxy and Envoy send a server at most 1.5 times its share: three quarters background responses, one quarter chat completions, ${tokens} tokens each. When all have begun, one server is killed (SIGKILL), another gets SIGTERM, and Redis is killed and started 1 s later. Clients of cut responses follow them again with starting_after. Four clients send short requests meanwhile, which must all succeed.`,
      body: texts.join("\n\n"),
    },
    flags["--save"] ?? false,
  );
}

function shown({ counts, probes, failedProbes, drainSecs, drainCode, cuts }: ProxiedResult): string {
  const names = ["streams", "whole", "cut", "interrupted", "readable", "events", "lost", "doubled"] as const;
  const rows = Object.entries(counts).map(([role, one]) => [role, ...names.map((name) => String(one[name]))]);
  const seen = [...cuts].map(([what, count]) => `${count} x "${what}"`).join(", ");
  return [
    table(["server", ...names], rows),
    `cut streams ended with: ${seen}`,
    `short requests: ${probes}, failed: ${failedProbes.length}${failedProbes
      .slice(0, 3)
      .map((one) => `\n  ${one}`)
      .join("")}`,
    `the stopped server ended after ${drainSecs.toFixed(1)} s with code ${drainCode}`,
  ].join("\n");
}
