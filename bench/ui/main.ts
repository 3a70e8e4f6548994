// `bench ui`: the web UI under load. Measures typing while responses stream in, and many visitors at the same time.
import arg from "arg";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { launch } from "../../test/server/ui/browser.ts";
import { atMost, exactly, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { measureTyping } from "./typing.ts";
import { measureVisitors } from "./visitors.ts";

export const usage = `npm run bench -- ui [FLAGS]: the web UI in Chromium, under load

  --save
`;

/** Maximum growth of the page's heap, in MB: several times the size of the responses' texts. */
const flatMegabytes = 12;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg({ "--save": Boolean }, { argv: [...argv] });
  const { path } = await resolveModel(defaultPackage);
  const delay = await measureVisitors(path);
  const browser = await launch();
  const { longTasks, keyPressMs, heapBytes } = await measureTyping(browser);
  const version = browser.version();
  await browser.close();
  const findings = [
    exactly("tasks above 50 ms", longTasks.length, 0),
    told("key press to its end, p90", `${keyPressMs.toFixed(0)} ms`),
    atMost("growth of the heap", heapBytes / 1e6, flatMegabytes, " MB", 1),
    atMost("event loop of the server beside 100 visitors, p99", delay.p99, 5, " ms", 2),
    told("the same, p50 and longest", `${delay.p50.toFixed(2)} and ${delay.max.toFixed(1)} ms`),
  ];
  report(
    {
      name: "ui",
      title: "The web UI under load",
      method:
        "Typing: 40 key presses while four answers of 200 tokens per second grow in a conversation of 10,000 messages. Visitors: 100 " +
        "at the same time load the page three times each, on a connection of its own, in another process on the same cores. Chromium " +
        `${version}, headless.`,
      body: findingsTable("what", findings),
    },
    flags["--save"] ?? false,
  );
}
