import { configure, me, queue, scheduling, state } from "./plugin.js";
import { serve } from "./serve.js";

await serve(me, configure, scheduling, state, queue);
