import type { IncomingMessage, ServerResponse } from "node:http";
import type { AnyLimits, CommonOptions } from "./middleware";
import type { Decision, LocalStore, RemoteStore, Store } from "./index";

export interface LimitedOptions<Req extends IncomingMessage = any, Res extends ServerResponse = any> extends CommonOptions<Req>, AnyLimits<Req> {
    /** "deny" (429, Weir-Reason: closed), "allow", or what to do. */
    onError?: "deny" | "allow" | ((error: Error, request: Req, response: Res, next: (error?: unknown) => void) => void);
    /** Answers in place of the middleware. The fields are set already. */
    onDenied?: (request: Req, response: Res, decision: Decision, next: (error?: unknown) => void) => void;
}

/** Middleware for Express, and for everything that calls (req, res, next). */
export function limited<Req extends IncomingMessage = any, Res extends ServerResponse = any>(
    store: Store | LocalStore | RemoteStore,
    options: LimitedOptions<Req, Res>,
): (request: Req, response: Res, next: (error?: unknown) => void) => Promise<void>;
