// A form for a JSON Schema: one field for each property; what has no field of its own is JSON in a text area.

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export { element };

function resolved(schema, root) {
  // One step through $ref and through "or null".
  let found = schema ?? {};
  if (found.$ref?.startsWith("#/")) {
    const target = found.$ref.slice(2).split("/").reduce((at, part) => at?.[part], root);
    found = { ...target, ...found, $ref: undefined };
  }
  const kinds = found.anyOf?.filter((one) => one.type !== "null");
  if (kinds?.length === 1) return { ...resolved(kinds[0], root), ...found, anyOf: undefined };
  return found;
}

const DEEPEST = 4; // of an example: it has to fit under a label, and schemas may be recursive

function example(schema, root, depth = 0) {
  // A value of the right shape, to be typed over.
  const one = resolved(schema, root);
  if (one.const !== undefined) return one.const;
  if (one.default !== undefined && one.default !== null) return one.default;
  if (one.enum?.length) return one.enum[0];
  const first = (one.anyOf ?? one.oneOf)?.[0];
  if (first) return depth < DEEPEST ? example(first, root, depth + 1) : null;
  const kind = Array.isArray(one.type) ? one.type[0] : one.type;
  if (kind === "object" || one.properties) {
    const members = depth < DEEPEST ? Object.entries(one.properties ?? {}).slice(0, 12) : [];
    return Object.fromEntries(members.map(([name, of]) => [name, example(of, root, depth + 1)]));
  }
  if (kind === "array") return one.items && depth < DEEPEST ? [example(one.items, root, depth + 1)] : [];
  return { string: "", integer: 0, number: 0, boolean: false }[kind] ?? null;
}

function field(schema, root) {
  // The input, and how its value is read; undefined if nothing was filled in.
  const choices = schema.enum ?? schema.oneOf?.filter((one) => "const" in one).map((one) => one.const);
  if (choices?.length) {
    const input = element("select", {}, element("option", { value: "", textContent: "" }));
    choices.forEach((one, at) => input.append(element("option", { value: String(at), textContent: String(one) })));
    if (schema.default !== undefined) input.value = String(choices.indexOf(schema.default));
    return [input, () => (input.value === "" ? undefined : choices[Number(input.value)])];
  }
  const kind = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  if (kind === "boolean") {
    const input = element("input", { type: "checkbox", checked: schema.default === true });
    return [input, () => input.checked];
  }
  if (kind === "integer" || kind === "number") {
    const input = element("input", { type: "number", step: kind === "integer" ? "1" : "any", value: schema.default ?? "" });
    if (schema.minimum !== undefined) input.min = schema.minimum;
    if (schema.maximum !== undefined) input.max = schema.maximum;
    return [input, () => (input.value === "" ? undefined : Number(input.value))];
  }
  if (kind === "string") {
    const input = element("input", { type: "text", value: schema.default ?? "", spellcheck: false });
    return [input, () => (input.value === "" && schema.default !== "" ? undefined : input.value)];
  }
  const shown = schema.default == null ? "" : JSON.stringify(schema.default); // null: left out, so that the example shows
  const input = element("textarea", { value: shown, placeholder: `JSON: ${JSON.stringify(example(schema, root))}`, spellcheck: false });
  return [input, () => (input.value.trim() === "" ? undefined : JSON.parse(input.value))];
}

export function fields(schema) {
  // The labels of a form, and a function that reads what was filled in. It throws, with the name of the field.
  const labels = [];
  const readers = [];
  const required = new Set(schema?.required ?? []);
  for (const [name, written] of Object.entries(schema?.properties ?? {})) {
    const one = resolved(written, schema);
    const [input, read] = field(one, schema);
    input.name = name;
    const about = [required.has(name) ? "required" : "", one.description ?? ""].filter(Boolean).join(" · ");
    labels.push(element("label", {}, one.title ?? name, ...(about ? [element("small", { textContent: about })] : []), input));
    readers.push([name, read, required.has(name) && input.type === "text"]);
  }
  const read = () => {
    const found = {};
    for (const [name, one, mayBeEmpty] of readers) {
      let value;
      try {
        value = one();
      } catch (error) {
        throw new Error(`${name}: ${error.message}`);
      }
      if (value === undefined && mayBeEmpty) value = "";
      if (value !== undefined) found[name] = value;
    }
    return found;
  };
  return [labels, read];
}
