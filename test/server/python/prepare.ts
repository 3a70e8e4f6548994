// Creates the Python environment of the client tests. .ci/run starts this script early, while it waits for other steps.
import { pythonEnvironment } from "./environment.ts";

await pythonEnvironment();
