/*
 * The names of states, as policies make them: POLICY/ENTRY/{NAME=VALUE,…}, or without ENTRY if it has the
 * name of its policy. Values are escaped (%XX); long ones end in a hash and cannot be read back.
 */

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/* {entry, parts: ["user=ann", …]} for a state of a policy, or null if the name does not belong to it. */
export function readName(policy, name) {
  if (!name.startsWith(`${policy}/`) || !name.endsWith("}")) return null;
  const open = name.indexOf("{");
  const before = name.slice(policy.length + 1, open);
  return { entry: before === "" ? policy : before.slice(0, -1), parts: name.slice(open + 1, -1).split(",") };
}

/* What to call it under the heading of its policy. */
export function labelOf(policy, name) {
  const read = readName(policy, name);
  return read ? { text: read.parts.map(decode).join(", "), entry: read.entry === policy ? null : read.entry } : { text: name, entry: null };
}

/* A question by attributes that probably leads to this state; null: the form cannot hold it. Only the answer shows: a hashed value, a network or a lower-case letter can stand for many. */
export function guessQuestion(policy, name) {
  const read = readName(policy, name);
  if (!read || /%0[AD]/.test(name)) return null;
  const attributes = {};
  for (const part of read.parts) {
    const cut = part.indexOf("=");
    if (cut < 1) continue;
    const attribute = part.slice(0, cut).replace(/^(?:lower|ip)\((.*)\)$/, "$1");
    const value = decode(part.slice(cut + 1));
    attributes[attribute] = /^[0-9a-fA-F.:]+\/\d+$/.test(value) ? value.slice(0, value.lastIndexOf("/")) : value;
  }
  return Object.keys(attributes).length > 0 ? { policy, attributes } : null;
}
