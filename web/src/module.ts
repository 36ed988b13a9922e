// The module of a source file, derived from its path.

import type { Data } from "./data.ts";

export interface Modules {
  names: string[];
  /** Index into `names`, by function. */
  ofFunction: Uint32Array;
}

const LIBRARY = /[\\/](?:site-packages|dist-packages|lib-python[\\/]\d+(?:\.\d+)?|lib_pypy|lib[\\/](?:python|pypy)\d[\w.]*)[\\/](?!site-packages|dist-packages)([^\\/]+)/g;

/** The module of a file in a library, of frozen or generated code, or of a shared library; null for other files. */
export function libraryModule(file: string): string | null {
  if (file === "") return "built-in";
  const frozen = /^<frozen ([\w]+)/.exec(file);
  if (frozen) return frozen[1]!;
  if (file.startsWith("<")) return file;
  const inside = [...file.matchAll(LIBRARY)].at(-1);
  if (inside) return inside[1]!.replace(/\.(py|pyc|so|pyd)$/, "").replace(/\.(cpython|pypy|abi3).*$/, "");
  const shared = /([^\\/]+?)(?:\.(?:cpython|pypy|abi3)[^\\/]*)?\.so(?:\.[\d.]+)?$/.exec(file);
  return shared ? shared[1]! : null;
}

/** A file's path, without the folders that contain its library. */
export function shortPath(file: string): string {
  const inside = [...file.matchAll(LIBRARY)].at(-1);
  return inside ? file.slice(inside.index + inside[0].length - inside[1]!.length) : file;
}

/** The module of each function. The program's own files are named by their paths without the common leading folders. */
export function modules(data: Data): Modules {
  const { files, functions } = data.header;
  const library = files.map(libraryModule);
  const own = files.filter((_, at) => library[at] === null).map((file) => file.split(/[\\/]/));
  const shared = sharedLength(own);
  const names: string[] = [];
  const numbers = new Map<string, number>();
  const ofFile = files.map((file, at) => {
    const name = library[at] ?? file.split(/[\\/]/)[shared]!.replace(/\.py$/, "");
    let number = numbers.get(name);
    if (number === undefined) {
      number = names.push(name) - 1;
      numbers.set(name, number);
    }
    return number;
  });
  return { names, ofFunction: Uint32Array.from(functions.file, (file) => ofFile[file]!) };
}

/** The number of leading folders that all paths have in common; at least the last part of each path remains. */
function sharedLength(paths: string[][]): number {
  if (paths.length === 0) return 0;
  let length = 0;
  while (paths.every((path) => path.length > length + 1 && path[length] === paths[0]![length])) length++;
  return length;
}
