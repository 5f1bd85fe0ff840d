"""The wheel: its files are those of the package and the library, and the tutorial runs with it."""
import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import unittest
import zipfile

from scene import ROOT, FolderTest, paceline

sys.path.insert(0, os.path.join(ROOT, "python"))
import wheel_backend  # noqa: E402


class WheelTest(FolderTest):
    def run_program(self, program, site):
        """What it prints, with the package of the wheel alone."""
        environment = {k: v for k, v in os.environ.items() if k != "PACELINE_LIBRARY"}
        environment["PYTHONPATH"] = site
        said = subprocess.run([sys.executable, program], cwd=self.folder, env=environment,
                              capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        return said.stdout

    def test_the_tutorial_runs_with_the_wheel(self):
        name = wheel_backend.build_wheel(self.folder, {"library": os.environ["PACELINE_LIBRARY"]})
        self.assertRegex(name, r"^paceline-[\d.]+-py3-none-linux_\w+\.whl$")
        self.assertIn(paceline.library_version(), name)
        site = os.path.join(self.folder, "site")
        with zipfile.ZipFile(os.path.join(self.folder, name)) as wheel:
            names = wheel.namelist()
            self.expect_record(wheel, names)
            wheel.extractall(site)
        for part in ("__init__.py", "spark/__init__.py", "py.typed", "libpaceline.so.1"):
            self.assertIn("paceline/" + part, names)
        self.assertFalse([n for n in names if "__pycache__" in n])
        # A copy, since a script's own folder comes before others.
        tutorial = shutil.copy(os.path.join(ROOT, "python/tutorial.py"), self.folder)
        said = self.run_program(tutorial, site)
        self.assertIn("best: ", said)
        self.assertLess(float(said.split("test error ")[1].split()[0]), 30, said)  # chance: 67
        # The example of the page, which has ten lines.
        with open(os.path.join(ROOT, "python/README.md"), encoding="utf-8") as page:
            example = page.read().split("```python\n")[1].split("```")[0]
        self.assertLessEqual(len(example.split("\n\n")[1].splitlines()), 10)
        program = os.path.join(self.folder, "example.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write(example)
        self.assertLess(float(self.run_program(program, site).split()[0]), 0.2)  # chance: 0.5

    def expect_record(self, wheel, names):
        record = [n for n in names if n.endswith(".dist-info/RECORD")][0]
        rows = {row[0]: row[1:] for row in
                csv.reader(io.StringIO(wheel.read(record).decode())) if row}
        self.assertEqual(set(rows), set(names))
        for name, (digest, size) in rows.items():
            if name == record:
                continue
            data = wheel.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            self.assertEqual((digest, size), ("sha256=" + found, str(len(data))), name)


if __name__ == "__main__":
    unittest.main()
