"""Write a result file: `write_result.py TEXT`, in which DEEP and LONG stand for what no shell could hold."""

import os
import sys

text = sys.argv[1].replace("DEEP", "[" * 100_000 + "]" * 100_000).replace("LONG", "x" * 5_000_000)
with open(os.environ["AUTOPILOT_RESULT_FILE"], "w", encoding="utf-8", errors="surrogatepass") as file:
    file.write(text)
