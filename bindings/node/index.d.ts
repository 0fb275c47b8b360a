// Types of weir for Node. README.md is the manual.

/** 1 to 65,536 bytes. Text is taken as UTF-8 and must be well-formed. */
export type Key = string | Uint8Array;
/** A text such as "token-bucket 10/s burst 20", or a Limit. Texts are parsed once and remembered. */
export type LimitLike = string | Limit;
/** A whole number from 0 to 10^12. */
export type Cost = number | bigint;

export interface LimitPart {
    /** "token-bucket", … */
    kind: string;
    /** How much it admits in a period; of `concurrent` how much at once. */
    amount: number;
    /** The period in microseconds; of `concurrent` the lease. */
    periodUs: number;
    /** 0: it has none. */
    burst: number;
    /** Its own cost; 0: it is charged what the request costs. */
    cost: number;
}

/** One or several limits: "token-bucket 10/s burst 20, fixed-window 1000/d". Never changes. */
export class Limit {
    constructor(text: string);
    /** The canonical text. */
    readonly text: string;
    /** How many limits it holds. */
    readonly length: number;
    readonly parts: LimitPart[];
    toString(): string;
    toJSON(): string;
}

/** An answer. Times are whole microseconds. All numbers are exact. */
export class Decision {
    private constructor();
    /** Whether the request may go ahead. */
    allowed: boolean;
    /** The most that a fresh state admits at once. */
    limit: number;
    /** What is left. */
    remaining: number;
    /** 0 if allowed; when the same request would be allowed; -1: never. */
    retryAfterUs: number;
    /** When the state is fresh again. */
    resetAfterUs: number;
    /** How long to wait before going ahead. */
    delayUs: number;
    /** What the caller may use: the cost, or less with `least`; 0 if denied. */
    granted: number;
    /** What the store was charged. */
    charged: number;
    /** When it was decided, by the store's clock, since the Unix epoch. */
    timeUs: number;
    /** Names what acquire holds; 0: nothing. */
    lease: number;
    /** Which limit bound, counted from 0. */
    binding: number;
    /** Decided by a local fallback: the store was out of reach. */
    degraded: boolean;
    /** Denied by fail=closed, because the store was out of reach; in the middleware also because it failed. */
    closed: boolean;
    /** In the middleware: denied because the store has no room for the key. */
    full: boolean;
    /** Decided from a slice of a Redis store, without a call. */
    local: boolean;
    /** Of takeAll, peekAll and acquire: the answer of each limit. */
    rows?: Decision[];
    /** Of takeMany: why this request was not decided. It is denied then. */
    error?: WeirError;
    /** In milliseconds, rounded up; Infinity: never. */
    readonly retryAfterMs: number;
    readonly resetAfterMs: number;
    readonly delayMs: number;
    /** The cost exceeds the limit. */
    readonly never: boolean;
    /** Text for settle(); null: takeAll charged its requests different amounts, so settle each with the receipt of its row. */
    readonly receipt: string | null;
}

export interface RequestOptions {
    /** 1 unless it is given; 0 asks without charging. */
    cost?: Cost;
    /** The longest delay that is acceptable, in milliseconds; Infinity: any. */
    waitMs?: number;
    /** The request also takes less than its cost, but not less than this. */
    least?: Cost;
    /** Holds a lease of the `concurrent` limit. */
    acquire?: boolean;
}

export interface Request extends RequestOptions {
    key: Key;
    limit: LimitLike;
}

export interface WaitOptions {
    cost?: Cost;
    /** Infinity unless it is given. */
    waitMs?: number;
    acquire?: boolean;
    signal?: AbortSignal;
}

export interface SlotOptions {
    cost?: Cost;
    /** 0 unless it is given: it does not wait. */
    waitMs?: number;
    signal?: AbortSignal;
}

/** A slot that is held, and renewed until it is released. */
export interface Slot {
    readonly lease: number;
    readonly decision: Decision;
    /** Aborted when the slot is lost. */
    readonly signal: AbortSignal;
    readonly lost: boolean;
    /** Gives it back, once; false: it was given back before, or it was lost. */
    release(): boolean | Promise<boolean>;
}

export interface StoreOptions {
    /** Calls of a redis:// store that may be in progress; more are EOVERLOAD. 1024 unless it is given. */
    maxCalls?: number;
    /** Waits that may be in progress; more are EOVERLOAD. 10,000 unless it is given. */
    maxWaiting?: number;
}

export interface ZoneInfo {
    size: number;
    keys: number;
    capacity: number;
    largeBytes: number;
    largeUsed: number;
    limits: number;
    evictedFresh: number;
    evictedUnused: number;
    evictedSoonest: number;
    repairs: number;
    refused: number;
    limitsMax: number;
    /** Settled receipts that were forgotten within their hour: settled again, they count twice. */
    evictedReceipts: number;
}

export interface Counts {
    allowed: number;
    denied: number;
    delayed: number;
    failed: number;
    degraded: number;
}

interface AnyStore {
    /** Whether calls are promises. */
    readonly remote: boolean;
    /** The address, without a password. */
    readonly url: string;
    readonly closed: boolean;
    /** Takes as soon as it is allowed, within waitMs. Occupies no thread. */
    wait(key: Key, limit: LimitLike, options?: WaitOptions): Promise<Decision>;
    /** A slot of a `concurrent` limit; EDENIED: there was none in time. */
    slot(key: Key, limit: LimitLike, options?: SlotOptions): Promise<Slot>;
    slot<T>(key: Key, limit: LimitLike, work: (slot: Slot) => T | Promise<T>, options?: SlotOptions): Promise<T>;
    /** How the takes of this store were decided. */
    counts(): Counts;
}

/** memory:, shm: and file: stores answer at once. */
export interface LocalStore extends AnyStore {
    take(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Decision;
    peek(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Decision;
    takeAll(requests: Request[]): Decision & { rows: Decision[] };
    peekAll(requests: Request[]): Decision & { rows: Decision[] };
    takeMany(requests: Request[]): Decision[];
    acquire(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Decision & { rows: Decision[] };
    renew(key: Key, limit: LimitLike, lease: number | bigint): boolean;
    release(key: Key, limit: LimitLike, lease: number | bigint): boolean;
    settle(key: Key, limit: LimitLike, receipt: string | null, cost: Cost): boolean;
    reset(key: Key): void;
    check(): void;
    info(): ZoneInfo;
    /** Stops the clock, for tests; null: the system's clock again. */
    setTime(timeUs: number | bigint | null): void;
    close(): void;
}

/** Every call of a redis:// store is a promise. */
export interface RemoteStore extends AnyStore {
    take(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Promise<Decision>;
    peek(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Promise<Decision>;
    takeAll(requests: Request[]): Promise<Decision & { rows: Decision[] }>;
    peekAll(requests: Request[]): Promise<Decision & { rows: Decision[] }>;
    takeMany(requests: Request[]): Promise<Decision[]>;
    acquire(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Promise<Decision & { rows: Decision[] }>;
    renew(key: Key, limit: LimitLike, lease: number | bigint): Promise<boolean>;
    release(key: Key, limit: LimitLike, lease: number | bigint): Promise<boolean>;
    settle(key: Key, limit: LimitLike, receipt: string | null, cost: Cost): Promise<boolean>;
    reset(key: Key): Promise<void>;
    check(): Promise<void>;
    close(): Promise<void>;
}

type Either<T> = T | Promise<T>;

/** A store whose address is only known at run time: await its answers. */
export interface Store extends AnyStore {
    take(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Either<Decision>;
    peek(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Either<Decision>;
    takeAll(requests: Request[]): Either<Decision & { rows: Decision[] }>;
    peekAll(requests: Request[]): Either<Decision & { rows: Decision[] }>;
    takeMany(requests: Request[]): Either<Decision[]>;
    acquire(key: Key, limit: LimitLike, cost?: Cost | RequestOptions): Either<Decision & { rows: Decision[] }>;
    renew(key: Key, limit: LimitLike, lease: number | bigint): Either<boolean>;
    release(key: Key, limit: LimitLike, lease: number | bigint): Either<boolean>;
    settle(key: Key, limit: LimitLike, receipt: string | null, cost: Cost): Either<boolean>;
    reset(key: Key): Either<void>;
    check(): Either<void>;
    close(): Either<void>;
}

type LocalUrl = `memory:${string}` | `shm:${string}` | `file:${string}`;
type RemoteUrl = `redis${string}`;

export const Store: {
    new (url: LocalUrl, options?: StoreOptions): LocalStore;
    new (url: RemoteUrl, options?: StoreOptions): RemoteStore;
    new (url: string, options?: StoreOptions): Store;
    /** Opens a store, and waits until it is open. */
    open(url: LocalUrl, options?: StoreOptions): Promise<LocalStore>;
    open(url: RemoteUrl, options?: StoreOptions): Promise<RemoteStore>;
    open(url: string, options?: StoreOptions): Promise<Store>;
    readonly prototype: Store;
};

/** Everything that can go wrong. */
export class WeirError extends Error {
    /** The name of the code: "EINVAL", … */
    readonly code: string;
    /** The place in a limit or an address, counted from 1; otherwise 0. */
    readonly column: number;
}

/** A slot that was not to be had; `decision` says why. */
export interface DeniedError extends WeirError {
    readonly decision: Decision;
}

type ErrorClass<E extends WeirError = WeirError> = { new (message?: string): E; readonly prototype: E };

/** One class per code. */
export const errors: {
    readonly EINVAL: ErrorClass;
    readonly ESYNTAX: ErrorClass;
    readonly EURL: ErrorClass;
    readonly ENOMEM: ErrorClass;
    readonly ESYSTEM: ErrorClass;
    readonly ETRUNCATED: ErrorClass;
    readonly EFOREIGN: ErrorClass;
    readonly EVERSION: ErrorClass;
    readonly EOWNER: ErrorClass;
    readonly EDAMAGED: ErrorClass;
    readonly EFULL: ErrorClass;
    readonly EBUSY: ErrorClass;
    readonly ENOLEASE: ErrorClass;
    readonly ERECEIPT: ErrorClass;
    readonly EUNSUPPORTED: ErrorClass;
    readonly ESHARED: ErrorClass;
    readonly ESLOTS: ErrorClass;
    readonly EUNREACHABLE: ErrorClass;
    readonly ESETTLED: ErrorClass;
    /** Its name is "AbortError", and its cause is the signal's reason. */
    readonly ECANCELED: ErrorClass;
    readonly EINTR: ErrorClass;
    readonly EGONE: ErrorClass;
    /** Of this package: too many calls or waits are in progress. */
    readonly EOVERLOAD: ErrorClass;
    /** Of this package: no slot was free in time. */
    readonly EDENIED: ErrorClass<DeniedError>;
};

export type FieldStyle = "ietf" | "ietf-06" | "x-ratelimit" | "openai" | "retry-after" | "off";

/** The HTTP fields that tell of a decision of takeAll: pairs of name and value. `limits` are those of its requests. */
export function fields(
    decision: Decision & { rows: Decision[] },
    limits: LimitLike | LimitLike[],
    options?: { style?: FieldStyle; names?: (string | undefined)[] },
): [string, string][];

/** What to limit a client by: an IPv4 address, or the /64 network of an IPv6 address. */
export function addressKey(address: string): string;

/** The version of the library. */
export const version: string;
