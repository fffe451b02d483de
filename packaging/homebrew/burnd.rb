# A Homebrew formula that builds from this checkout:
#
#     HOMEBREW_DEVELOPER=1 brew install --HEAD packaging/homebrew/burnd.rb
#
# Without that variable Homebrew takes formulae from taps only.
class Burnd < Formula
  include Language::Python::Virtualenv

  desc "Records what coding agents do on this machine and what it costs"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git
  license "Apache-2.0"

  depends_on "rust" => :build # for libraries that have no wheel on this machine
  depends_on "python@3.13"

  def install
    virtualenv_create(libexec, "python3.13", without_pip: false)
    # The lock has the developers' tools as well: it only says which version of what is needed.
    system libexec/"bin/python", "-m", "pip", "install", "--constraint", "requirements.lock", "."
    bin.install_symlink libexec/"bin/burnd", libexec/"bin/burnctl"
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
    assert_match(/^burnctl \d/, shell_output("#{bin}/burnctl --version"))
    assert_match "shop-api", shell_output("#{bin}/burnctl demo --pace 0.2")
  end
end
