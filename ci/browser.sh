#!/usr/bin/env bash
# The dashboard in headless Chromium: installs it from Debian's packages where there is none, and makes its absence a
# failure. `ci/dashboard.py --shots <folder> <page>` takes pictures to look at.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v chromium chromium-browser google-chrome > /dev/null; then
    apt-get install -y --no-install-recommends chromium fonts-dejavu-core
fi
KERNELGATE_REQUIRE=chromium cargo test --release --test reports browser
