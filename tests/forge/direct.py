"""A scripted service that is asked in process: no program, no network."""

import json
from urllib.parse import parse_qsl

from runner.forge.answers import Answer
from runner.forge.rest import NoAnswerError, Rest
from tests.forge.scripted_server import Request, ScriptedService


def direct(service: ScriptedService, name: str) -> Rest:
    """Return the door to a service, without a program in between; of its faults it knows lost answers."""

    def send(method: str, path: str, body: bytes, *, asked: str) -> Answer:
        assert asked
        where, _, query = path.partition("?")
        given = json.loads(body) if body else None
        request = Request(method=method, path=where, query=dict(parse_qsl(query)), headers={}, body=given)
        service.book.append(request)
        fault = service.fault(request)
        reply = service.answer(request)
        if fault is not None:
            raise NoAnswerError(str(fault.kind))
        return Answer(status=reply.status, headers=reply.headers, body=json.dumps(reply.value).encode())

    return Rest(service=name, sign_in="", send=send, pause=lambda _: None)
