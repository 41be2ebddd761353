"""A connection to a server on which everything is delayed by the same time, each way."""
import asyncio
import threading

PIECE = 65536


class Delay:
    """Listens on a port of its own, `hosts`, until the program ends."""

    def __init__(self, server, seconds):
        self.server = server.rsplit(":", 1)
        self.seconds = seconds
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        listening = asyncio.run_coroutine_threadsafe(self.listen(), self.loop)
        self.hosts = listening.result()

    async def listen(self):
        server = await asyncio.start_server(self.connect, "127.0.0.1", 0)
        return "%s:%d" % server.sockets[0].getsockname()

    async def connect(self, reader, writer):
        try:
            ahead_reader, ahead_writer = await asyncio.open_connection(*self.server)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self.carry(reader, ahead_writer), self.carry(ahead_reader, writer))

    async def carry(self, reader, writer):
        """Sends on later what has arrived, in order, while more arrives."""
        while piece := await self.piece(reader):
            self.loop.call_later(self.seconds, writer.write, piece)
        self.loop.call_later(self.seconds, writer.close)

    async def piece(self, reader):
        try:
            return await reader.read(PIECE)
        except OSError:
            return b""
