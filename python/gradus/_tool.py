"""The command-line tool, where the package has it: in a wheel, and in what pip installs."""

import os
import sys


def main():
    """Runs the tool in place of this process, with its arguments; it does not return."""
    tool = os.path.join(os.path.dirname(__file__), "bin", "gradus")
    if not os.path.exists(tool):
        sys.exit(f"gradus: the package has no tool: {tool} is not there")
    os.execv(tool, sys.argv)
