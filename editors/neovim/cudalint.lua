-- cudalint in Neovim 0.11 or newer. Put this file into ~/.config/nvim/plugin/.
vim.lsp.config("cudalint", {
  cmd = { "cudalint", "lsp" },
  -- C, C++ and Python too: of those, the server checks what holds CUDA.
  filetypes = { "cuda", "cpp", "c", "python" },
  root_markers = { "cudalint.toml", ".cudalint.toml", "pyproject.toml", ".git" },
})
vim.lsp.enable("cudalint")

-- Keys for what Neovim has no default for: above a kernel, "confirm" runs its experiments.
vim.api.nvim_create_autocmd("LspAttach", {
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == "cudalint" then
      vim.keymap.set("n", "grc", vim.lsp.codelens.run, { buffer = event.buf, desc = "cudalint: confirm" })
      vim.api.nvim_create_autocmd({ "BufEnter", "InsertLeave" }, {
        buffer = event.buf,
        callback = function()
          vim.lsp.codelens.refresh({ bufnr = event.buf })
        end,
      })
    end
  end,
})
