// What the middlewares have in common.
import type { Cost, Decision, FieldStyle, Key, LimitLike } from "./index";

type Given<Req, T> = T | ((request: Req) => T | Promise<T>);

export interface Rule<Req> {
    limit: Given<Req, LimitLike>;
    /** The client's address (IPv6 by /64) unless it is given. null: the rule does not apply. */
    key?: string | ((request: Req) => Key | null | Promise<Key | null>);
    cost?: Given<Req, Cost>;
    /** What the fields call it, and what keys of a function begin with beside a limit of the same kind and period. */
    name?: string;
    /** Decided and told, never enforced. Not for concurrent limits. */
    shadow?: boolean;
}

/** One rule, or several: all of them or none. */
export interface AnyLimits<Req> {
    limit?: Given<Req, LimitLike>;
    key?: string | ((request: Req) => Key | null | Promise<Key | null>);
    cost?: Given<Req, Cost>;
    name?: string;
    shadow?: boolean;
    limits?: Rule<Req>[];
}

export interface CommonOptions<Req> {
    /** True: the request has no limit. */
    skip?: (request: Req) => boolean | Promise<boolean>;
    /** "ietf" unless it is given. */
    style?: FieldStyle;
    /** Told what rules in shadow would deny; `denied`: the request is denied anyway. It does not wait for it. */
    onShadow?: (request: Req, decision: Decision, rule: { key: Key; name?: string; denied: boolean }) => unknown;
    /** Of an answer that denies; 429 unless it is given. */
    status?: number;
}
