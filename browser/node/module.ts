// The part of node:module that the engine uses: `require` of libraries by name.

import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { DefaultMap, LRUMapWithDelete } from "mnemonist";

const libraries: Readonly<Record<string, unknown>> = {
  "mnemonist/default-map": DefaultMap,
  "mnemonist/lru-map-with-delete": LRUMapWithDelete,
  "ajv/dist/2020.js": { Ajv2020 },
  "ajv-formats": { default: addFormats },
};

export function createRequire(): (name: string) => unknown {
  return (name) => {
    const library = libraries[name];
    if (library === undefined) throw new Error(`the engine in the browser has no library ${name}`);
    return library;
  };
}
