// Generator of docs/metrics.md: lists every metric with its type, labels and help text, read from the metric objects.
// write-reference.ts writes the file; a test fails if the file is out of date.
import type { Registry } from "prom-client";
import { engineMetrics, latencyMetrics, textMetrics } from "../../../actors/front/metrics/engine-metrics.ts";
import { storeMetrics } from "../../../actors/front/metrics/store-metrics.ts";
import { code, markdownTable } from "../../../runtime/markdown-table.ts";
import { engineRegistry } from "./engine-registry.ts";
import { processRegistry } from "./process-registry.ts";
import { requestMetrics } from "./request-metrics.ts";

/** Properties of a registered metric that prom-client's type does not declare. */
interface RegisteredMetric {
  readonly name: string;
  readonly help: string;
  readonly type?: string;
  readonly labelNames?: readonly string[];
}

const introduction = `# Metrics

<!-- Generated from the metrics by \`npm run docs\`; edits are lost. -->

\`GET /metrics\` has them in the Prometheus text format; \`--disable-metrics\` turns them off. A server with API keys asks for one
here too. [../deploy/grafana/troupe.json](../deploy/grafana/troupe.json) is a dashboard for Grafana.

- Labels never have text of clients: an unknown model is \`unknown\`, an unknown path \`<unmatched>\`.
- A histogram \`x\` has the series \`x_bucket\` (with the label \`le\`), \`x_sum\` and \`x_count\`.
- Metrics of models are sums over all models, except latencies, which have the label \`model\`.`;

const processIntroduction =
  "Metrics of the server's main process. Models on the llama engine run in processes of their own, which are not included. " +
  "`nodejs_eventloop_lag_*` is how late the main thread's event loop runs timers. The list is of Linux; other systems lack some.";

/** Returns the text of docs/metrics.md. */
export function renderMetrics(): string {
  const noTextTasks = { waiting: 0, slow: 0, ended: { time: 0, memory: 0, crash: 0 } };
  const models = engineRegistry([...engineMetrics([]), ...latencyMetrics(new Map()), ...textMetrics(noTextTasks)]);
  const store = engineRegistry(storeMetrics(null));
  const sections = [
    `## Requests\n\n${tableOf(requestMetrics().registry)}`,
    `## Models\n\n${tableOf(models)}`,
    `## Shared state\n\nOnly with \`state_url\`.\n\n${tableOf(store)}`,
    `## Process\n\n${processIntroduction}\n\n${tableOf(processRegistry())}`,
  ];
  return `${[introduction, ...sections].join("\n\n")}\n`;
}

function tableOf(registry: Registry): string {
  const metrics = registry.getMetricsAsArray() as unknown as readonly RegisteredMetric[];
  const rows = metrics.map(({ name, type = "gauge", labelNames = [], help }) => {
    return [code(name), type, labelNames.map(code).join(", "), help.replace(/\.$/, "")];
  });
  return markdownTable(["name", "type", "labels", "meaning"], rows);
}
