# Who leaves? A ridge logistic regression by region: judged by 5-fold cross-validation, tested on the last third.
#   Rscript fit.R data/North.csv --ridge 0.5 --degree 2
words <- commandArgs(trailingOnly = TRUE)
option <- function(name, default) {
  given <- c(words, paste0("--", name), default)
  given[match(paste0("--", name), given) + 1]
}
ridge <- as.numeric(option("ridge", 1))
degree <- as.integer(option("degree", 1))
set.seed(as.integer(option("seed", 1)))
customers <- read.csv(words[1])
y <- customers$left
known <- seq_len(nrow(customers) %/% 3 * 2)
terms <- reformulate(paste(rep(".", degree), collapse = " * "), "left")
products <- model.matrix(terms, customers)[, -1]
scaled <- scale(products, colMeans(products[known, ]), apply(products[known, ], 2, sd))
x <- cbind(intercept = 1, scaled)

fit <- function(x, y) {
  loss <- function(w) ridge / 2 * sum(w[-1]^2) - sum(plogis((2 * y - 1) * x %*% w, log.p = TRUE))
  slope <- function(w) ridge * c(0, w[-1]) - crossprod(x, y - plogis(x %*% w))
  optim(numeric(ncol(x)), loss, slope, method = "BFGS", control = list(maxit = 1000))$par
}
auc <- function(score, y) (mean(rank(score)[y == 1]) - (sum(y) + 1) / 2) / sum(y == 0)

if (option("role", "tune") == "tune") {
  folds <- split(known, sample(rep_len(1:5, length(known))))
  scores <- sapply(folds, function(fold) {
    others <- setdiff(known, fold)
    auc(x[fold, ] %*% fit(x[others, ], y[others]), y[fold])
  })
  cat(sprintf("auc=%.4f stderr=%.4f\n", mean(scores), sd(scores) / sqrt(5)))
} else {
  weights <- setNames(fit(x[known, ], y[known]), colnames(x))
  cat(sprintf("auc=%.4f\n", auc(x[-known, ] %*% weights, y[-known])))
  model <- list(terms = terms, weights = weights, scaled = attributes(scaled)[c("scaled:center", "scaled:scale")])
  saved <- file.path(option("artifact", "."), "model.rds")
  saveRDS(model, saved)  # which says nothing of a full disk: 75 sends the job elsewhere
  if (!isTRUE(try(identical(readRDS(saved), model)))) quit(status = 75)
}
