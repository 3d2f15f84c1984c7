;;; cudalint.el --- cudalint in Emacs 29 or newer, through Eglot  -*- lexical-binding: t -*-

;; Put this into your init file. Eglot runs one server in a buffer, so CUDA gets a mode of its own,
;; and clangd keeps C++.

(define-derived-mode cuda-mode c++-mode "CUDA"
  "C++ with kernels and launches.")

(add-to-list 'auto-mode-alist '("\\.cuh?\\'" . cuda-mode))

(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs '((cuda-mode :language-id "cuda") . ("cudalint" "lsp"))))

(add-hook 'cuda-mode-hook #'eglot-ensure)

(provide 'cudalint)
;;; cudalint.el ends here
