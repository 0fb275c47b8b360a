import type { AnyLimits, CommonOptions } from "./middleware";
import type { Decision, LocalStore, RemoteStore, Store } from "./index";

/** Plugin for Fastify. A route has its own options in config.weir; false: no limit. */
declare function weirLimits(fastify: any, options: weirLimits.WeirOptions): Promise<void>;

declare namespace weirLimits {
    export interface RouteOptions<Req = any, Reply = any> extends CommonOptions<Req>, AnyLimits<Req> {
        /** "deny" (429, Weir-Reason: closed), "allow", or what to do. */
        onError?: "deny" | "allow" | ((error: Error, request: Req, reply: Reply) => unknown);
        /** Answers in place of the plugin. The fields are set already. */
        onDenied?: (request: Req, reply: Reply, decision: Decision) => unknown;
    }

    export interface WeirOptions<Req = any, Reply = any> extends RouteOptions<Req, Reply> {
        store: Store | LocalStore | RemoteStore;
    }

    export { weirLimits, weirLimits as default };
}

export = weirLimits;
