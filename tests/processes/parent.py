"""A pipeline with every stage apart and a request that never ends, to be killed: prints its children and its folder."""

from __future__ import annotations

import asyncio
import json

from antiphon.pipelines.client import Client
from antiphon.pipelines.process_runtime import ProcessRuntime
from tests.processes.stages import ask, spec


async def main() -> None:
    runtime = ProcessRuntime(spec(place="apart"))
    async with Client(runtime) as client:
        pids = [int(str(p["place"]).split()[1]) for p in client.health()["processes"].values()]
        generation = client.generate(ask("forever", source={"n": 10**9, "size": 50_000}))
        seen = 0
        async for _ in generation:
            seen += 1
            if seen == 3:
                assert runtime._folder is not None
                print(json.dumps({"pids": pids, "folder": str(runtime._folder.path)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
