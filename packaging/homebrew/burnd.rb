# A Homebrew formula: `brew install --build-from-source packaging/homebrew/burnd.rb` from a checkout.
class Burnd < Formula
  include Language::Python::Virtualenv

  desc "Records what coding agents do on this machine and what it costs"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git
  license "Apache-2.0"

  depends_on "rust" => :build # for libraries that have no wheel on this machine
  depends_on "python@3.13"

  def install
    venv = virtualenv_create(libexec, "python3.13")
    system libexec/"bin/python", "-m", "pip", "install", "--requirement", "requirements.lock"
    venv.pip_install_and_link buildpath
    man1.install "packaging/man/burnd.1", "packaging/man/burnctl.1"
    bash_completion.install "packaging/completions/burnctl"
    zsh_completion.install "packaging/completions/_burnctl"
    fish_completion.install "packaging/completions/burnctl.fish"
  end

  service do
    run [opt_bin/"burnd", "run"]
    keep_alive successful_exit: false
    process_type :background
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/burnctl --version")
  end
end
