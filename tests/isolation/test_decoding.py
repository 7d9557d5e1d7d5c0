"""Data become objects in several threads at once, and the process lives."""

import subprocess
import sys

_RACE = """
import sys, threading, types
from isolation.decoding import from_values

CLASSES = '''
from msgspec import Struct
class Leaf(Struct):
    number: "int"
class Branch(Struct):
    leaf: "Leaf"
    more: "tuple[Leaf, ...]" = ()
class Tree(Struct):
    branch: "Branch"
    others: "list[Branch]" = []
'''
DATA = {"branch": {"leaf": {"number": 1}}, "others": [{"leaf": {"number": 2}}]}

sys.setswitchinterval(1e-6)
for number in range(400):
    module = sys.modules[f"m{number}"] = types.ModuleType(f"m{number}")
    exec(CLASSES, module.__dict__)
    barrier, made = threading.Barrier(4), []
    def make():
        barrier.wait()
        made.append(from_values(DATA, module.Tree))
    threads = [threading.Thread(target=make) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each.others[0].leaf.number for each in made] == [2] * 4
"""


def test_threads_that_meet_a_class_for_the_first_time_do_not_crash() -> None:
    """Without taking turns, msgspec ends about one such process in one with SIGSEGV."""
    ended = subprocess.run([sys.executable, "-c", _RACE], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
