import type { LocalStore, RemoteStore, Store } from "./index";

/** A store for express-rate-limit: rateLimit({ store: new WeirStore("shm:/limits") }) */
export class WeirStore {
    constructor(store: string | Store | LocalStore | RemoteStore, options?: { prefix?: string });
    readonly prefix: string;
    readonly localKeys: boolean;
    init(options: { windowMs: number }): void;
    increment(key: string): Promise<{ totalHits: number; resetTime: Date }>;
    get(key: string): Promise<{ totalHits: number; resetTime: Date } | undefined>;
    decrement(key: string): Promise<void>;
    resetKey(key: string): Promise<void>;
    resetAll(): Promise<void>;
    shutdown(): Promise<void>;
}
