// Helm chart, checked on the manifest that was rendered from it. HELM=helm also renders the chart again and compares the
// result.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { parse, parseAllDocuments } from "yaml";
import { unknownVariables } from "../../../cli/config/environment.ts";

const root = new URL("../../../../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

/** Fields of Kubernetes objects that the tests read. */
interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly selector?: Record<string, string> & { readonly matchLabels?: Record<string, string> };
    readonly template?: {
      readonly metadata: { readonly labels: Record<string, string> };
      readonly spec: {
        readonly terminationGracePeriodSeconds?: number;
        readonly containers: readonly {
          readonly env?: readonly { readonly name: string; readonly value?: string }[];
          readonly ports: readonly { readonly name: string }[];
          readonly volumeMounts: readonly { readonly name: string }[];
        }[];
        readonly volumes?: readonly { readonly name: string }[];
      };
    };
    readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[];
    readonly ports?: readonly { readonly targetPort: string }[];
    readonly scaleTargetRef?: { readonly name: string };
    readonly metrics?: readonly { readonly pods: { readonly metric: { readonly name: string } } }[];
  };
}

const manifests = parseAllDocuments(read("deploy/kubernetes/replicas.yaml")).map((document) => {
  assert.deepEqual(document.errors, []);
  return document.toJS() as Manifest;
});
const one = (kind: string, name = "troupe"): Manifest => {
  const found = manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name);
  assert.ok(found !== undefined, `${kind} ${name}`);
  return found;
};
const podOf = (manifest: Manifest) => {
  assert.ok(manifest.spec.template !== undefined);
  return manifest.spec.template;
};
const pods = manifests.filter(({ spec }) => spec.template !== undefined);

describe("the Helm chart", () => {
  it("renders a deployment, a service, autoscaling, a disruption budget, and Valkey", () => {
    const kinds = manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort();
    assert.deepEqual(kinds, [
      "Deployment troupe",
      "HorizontalPodAutoscaler troupe",
      "PodDisruptionBudget troupe",
      "Service troupe",
      "Service troupe-valkey",
      "StatefulSet troupe-valkey",
    ]);
  });

  it("selects its own pods, mounts what it has, and names ports that exist", () => {
    for (const manifest of pods) {
      const { metadata, spec } = podOf(manifest);
      assert.deepEqual(manifest.spec.selector?.matchLabels, metadata.labels);
      const volumes = [...(spec.volumes ?? []).map(({ name }) => name)];
      volumes.push(...(manifest.spec.volumeClaimTemplates ?? []).map((claim) => claim.metadata.name));
      for (const { volumeMounts } of spec.containers) {
        for (const { name } of volumeMounts) assert.ok(volumes.includes(name), name);
      }
      const service = one("Service", manifest.metadata.name);
      assert.deepEqual(service.spec.selector, metadata.labels);
      const ports = spec.containers.flatMap((container) => container.ports.map(({ name }) => name));
      for (const { targetPort } of service.spec.ports ?? []) assert.ok(ports.includes(targetPort), targetPort);
    }
    assert.deepEqual(one("PodDisruptionBudget").spec.selector?.matchLabels, podOf(one("Deployment")).metadata.labels);
    assert.equal(one("HorizontalPodAutoscaler").spec.scaleTargetRef?.name, one("Deployment").metadata.name);
  });

  it("sets only variables that are settings, and lets a pod end its streams before it is killed", () => {
    const { spec } = podOf(one("Deployment"));
    const variables = Object.fromEntries(spec.containers[0]?.env?.map(({ name, value = "" }) => [name, value]) ?? []);
    assert.deepEqual(unknownVariables(variables), []);
    const { TROUPE_SHUTDOWN_DELAY_SECS: delay, TROUPE_SHUTDOWN_DEADLINE_SECS: deadline } = variables;
    assert.ok((spec.terminationGracePeriodSeconds ?? 0) > Number(delay) + Number(deadline));
    assert.equal(variables.TROUPE_STATE_URL, `redis://${one("Service", "troupe-valkey").metadata.name}:6379`);
  });

  it("scales on a metric that exists", () => {
    const [metric] = one("HorizontalPodAutoscaler").spec.metrics ?? [];
    assert.ok(read("docs/metrics.md").includes(`\`${metric?.pods.metric.name}\` | gauge`));
  });

  it("has the keys of its values in their schema", () => {
    const values = parse(read("deploy/helm/troupe/values.yaml")) as Record<string, unknown>;
    const schema = JSON.parse(read("deploy/helm/troupe/values.schema.json")) as { properties: Record<string, unknown> };
    assert.deepEqual(Object.keys(schema.properties).sort(), ["global", ...Object.keys(values)].sort());
  });

  const helm = process.env.HELM;
  it("renders the committed manifest", { skip: helm === undefined && "HELM is not set" }, () => {
    const chart = fileURLToPath(new URL("deploy/helm/troupe", root));
    const rendered = execFileSync(helm ?? "", ["template", "troupe", chart, "--kube-version", "1.33.0"], {
      encoding: "utf8",
    });
    assert.deepEqual(
      parseAllDocuments(rendered).map((document) => document.toJS()),
      manifests,
    );
  });
});
