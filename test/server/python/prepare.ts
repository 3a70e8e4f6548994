// Script that creates the Python environment of the client tests. .ci/run starts the script early, while other steps run.
import { pythonEnvironment } from "./environment.ts";

await pythonEnvironment();
