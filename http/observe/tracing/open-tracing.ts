// Start of tracing, which needs the OpenTelemetry packages. The user installs these packages, because few servers need them.
import { ServerError } from "../../../runtime/errors.ts";
import { installCommand, isInstalled } from "../../../runtime/host/optional-packages.ts";
import type { Tracing, TracingOptions } from "./tracing.ts";

const packages = [
  "@opentelemetry/api",
  "@opentelemetry/exporter-trace-otlp-http",
  "@opentelemetry/resources",
  "@opentelemetry/sdk-trace-base",
] as const;

/** Opens tracing. Throws `config_invalid` if a package is missing. */
export async function openTracing(options: TracingOptions): Promise<Tracing> {
  if (!packages.every(isInstalled)) {
    const message = `otlp_endpoint expects the OpenTelemetry packages: ${installCommand(packages)}`;
    throw new ServerError("config_invalid", message, { param: "otlp_endpoint" });
  }
  const { Tracing } = await import("./tracing.ts");
  return new Tracing(options);
}
